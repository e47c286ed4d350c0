"""The ways to generate that a job's variants can name, and what options each takes.

The plugin and fewer steps are known here, so that refusing their options needs no torch. Everything else comes from the
comparison, under its name in small letters with hyphens ("uniform skip order 0" is uniform-skip-order-0).
"""

from dataclasses import dataclass, make_dataclass
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge, Gt

from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.jobs.record import BASELINE

if TYPE_CHECKING:
    from galaxydit.eval.compare.method import Method

PLUGIN, FEWER_STEPS = "galaxydit", "fewer-steps"
EXAMPLE_STEPS = 50  # for which methods of the comparison tell what their settings look like


@dataclass(frozen=True)
class PluginOptions:
    """Options of the plugin."""

    speedup: Annotated[float, Ge(1)] | None = None
    max_error: Annotated[float, Gt(0)] | None = None
    threshold: Annotated[float, Ge(0)] | None = None
    profile: str | None = None


@dataclass(frozen=True)
class FewerStepsOptions:
    """Options of fewer steps."""

    steps: Annotated[int, Ge(1)]


OWN: dict[str, type] = {PLUGIN: PluginOptions, FEWER_STEPS: FewerStepsOptions}


def compared_methods() -> "dict[str, Method]":
    """The methods of the comparison by the name that a job file uses."""
    from galaxydit.eval.compare.registry import EVERY_METHOD

    return {method.slug: method for method in EVERY_METHOD}


def needs_calibration(name: str) -> bool:
    """Whether the method measures something on other prompts before it can run."""
    return name not in (BASELINE, *OWN) and compared_methods()[name].calibrate is not None


def options_of(name: str) -> type:
    """The options of a method as a dataclass; those that all its settings have must be given.

    Raises GalaxyDiTError if a package is missing.
    """
    if name in OWN:
        return OWN[name]
    method = compared_methods()[name]
    if not method.is_available:
        raise GalaxyDiTError(
            f"method={name!r} is not allowed: expected an installed {method.needs}; pip install 'galaxydit[bench]'"
        )
    examples = method.settings(EXAMPLE_STEPS)
    kinds: dict[str, Any] = {}
    for key, value in (item for one in examples for item in one.items()):
        kinds[key] = kinds.get(key, type(value)) | type(value)
    optional = {key for key in kinds if any(key not in one for one in examples)}
    options = [(key, kind | None, None) if key in optional else (key, kind) for key, kind in kinds.items()]
    return make_dataclass(name.replace("-", "_"), options, kw_only=True)
