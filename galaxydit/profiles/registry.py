"""The profiles that come with the plugin, and which of them belongs to a model."""

import warnings
from functools import cache
from importlib.resources import files
from pathlib import Path

from torch import nn

from galaxydit.errors import GalaxyDiTError, ProfileWarning
from galaxydit.fingerprint import why_other_model
from galaxydit.profile import Profile, load_profile

FOLDER = Path(str(files("galaxydit") / "profiles"))


@cache
def shipped_profiles() -> tuple[Profile, ...]:
    """All shipped profiles, by name."""
    return tuple(load_profile(path) for path in sorted(FOLDER.glob("*.json")))


def get_profile(name_or_path: str | Path) -> Profile:
    """A shipped profile by its name, or the one in a file; raises GalaxyDiTError where it is neither."""
    names = [profile.name for profile in shipped_profiles()]
    if str(name_or_path) in names:
        return shipped_profiles()[names.index(str(name_or_path))]
    if not Path(name_or_path).is_file():
        raise GalaxyDiTError(
            f"profile={str(name_or_path)!r} is neither a file nor shipped ({', '.join(names)}); "
            "write one with `galaxydit calibrate`"
        )
    return load_profile(name_or_path)


def find_profile(transformer: nn.Module) -> tuple[Profile | None, str]:
    """The shipped profile of a model, measured ones before starters, or None and why there is none."""
    matching, near = [], ""
    for profile in shipped_profiles():
        why = why_other_model(profile.model, transformer)
        if why is None:
            matching.append(profile)
        elif "checkpoint" in why or "adapters" in why:
            near = f" (the shipped {profile.name} is not used: {why})"
    if not matching:
        return None, f"no profile belongs to this model{near}"
    matching.sort(key=lambda profile: profile.kind != "measured")
    same_kind = [profile.name for profile in matching if profile.kind == matching[0].kind]
    if len(same_kind) > 1:
        warnings.warn(
            f"galaxydit: several profiles belong to this model and {same_kind[0]} is used; "
            f"choose with profile=..., one of {', '.join(same_kind)}",
            ProfileWarning,
            stacklevel=2,
        )
    return matching[0], ""
