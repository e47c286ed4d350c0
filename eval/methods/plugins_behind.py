"""The plugins that a variant of a job or of a comparison depends on."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from galaxydit.errors import GalaxyDiTError
from galaxydit.plugins import Plugin, plugin_of

if TYPE_CHECKING:
    from galaxydit.eval.methods.method import Method

KEY = "plugin "  # before the name of a plugin, among the files of a variant


def plugins_behind(method: "Method | None", profile: str | None) -> dict[str, str]:
    """The SHA-256 of the code of each plugin, by "plugin NAME": of a method, and of the proxy that a profile reads.

    `method` is a compared method, None for the others; `profile` is the option of this name, if any.
    """
    found: list[Plugin | None] = []
    if method is not None:
        found.append(plugin_of(method.module))
    if profile is not None:
        # Here, because they load torch, which a refused job need not wait for.
        from galaxydit.profiles.profile_registry import load_profile
        from galaxydit.proxies import PROXIES

        if PROXIES.has_plugins:
            found.append(PROXIES.plugin_of(load_profile(profile).recipe.proxy))
    return {f"{KEY}{plugin.name}": plugin.digest for plugin in found if plugin is not None}


def check_plugins(files: Mapping[str, str], method: "Method | None", profile: str | None) -> None:
    """Raise GalaxyDiTError if this process has other plugins than those among the `files` of a variant."""
    before = {name: digest for name, digest in files.items() if name.startswith(KEY)}
    now = plugins_behind(method, profile)
    for name in before | now:
        if before.get(name) != now.get(name):
            cure = "install or copy the same version of it on every machine, or take a new --out"
            raise GalaxyDiTError(f"the {name} is not the one that the run began with", cure)
