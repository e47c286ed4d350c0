"""The declaration of a compared method: how it is attached, which settings it has, what it measures beforehand."""

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from diffusers import DiffusionPipeline

from galaxydit.eval.methods.method_registry import check_new, slug_of
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.trial import Attached

Setting = Mapping[str, Any]
"""Parameters of a method as JSON data, such as {"threshold": 0.08}."""
Settings = Callable[[int], Sequence[Setting]]
"""Function from a number of steps to settings, from accurate to fast."""
Context = AbstractContextManager[Attached]
"""In it, the pipeline generates with a method; after it, the pipeline is bit-identical to before."""
AttachMethod = Callable[[DiffusionPipeline, Setting, Any], Context]
"""Function from pipeline, setting and the method's calibration (None without one)."""


@dataclass(frozen=True)
class Method:
    """A compared method.

    Attributes:
        name: unique, for tables, without commas.
        source: paper or project, "control", "this project" or "ablation".
        settings: candidates; those of a tuned method should cover speedups from 1.25 to 3.5.
        calibrate: measures what `attach` needs, as JSON data, once and never on scored prompts; by default nothing.
            Function from pipeline, calibration prompts, generation settings and the seed of the first prompt, to which
            each further prompt adds 1.
        generation: changes the generation settings for a setting, for example to fewer steps.
        tuned: False scores all settings without tuning.
        needs: optional module that the method imports.
        follows_profile: whether a setting may have "profile", the path of a profile file.
        module: that declares it.
    """

    name: str
    source: str
    settings: Settings
    attach: AttachMethod
    calibrate: Callable[[DiffusionPipeline, Sequence[str], GenerationSettings, int], Any] | None = None
    generation: Callable[[GenerationSettings, Setting], GenerationSettings] | None = None
    tuned: bool = True
    needs: str | None = None
    follows_profile: bool = False
    module: str = ""

    @property
    def slug(self) -> str:
        return slug_of(self.name)


METHODS: dict[str, Method] = {}
"""The methods of the imported files by name; `method_registry.load_method` imports the file of a method."""


def method(
    name: str, source: str, settings: Settings, *, published: Settings | None = None, **options: Any
) -> Callable[[AttachMethod], AttachMethod]:
    """Decorator that declares the function `attach` as a compared method; `options` are further fields of `Method`.

    In this folder `name`, `source`, `tuned` and `needs` must be literals, because the command line reads them without
    torch. `published` are the settings of a second method, "NAME published", which are scored without tuning. Raises
    GalaxyDiTError for a name that another module has declared.
    """
    module = sys._getframe(1).f_globals.get("__name__", "")

    def declare(attach: AttachMethod) -> AttachMethod:
        declared = Method(name, source, settings, attach, module=module, **options)
        check_new(name, module, {each.name: each.module for each in METHODS.values()})
        METHODS[name] = declared
        if published is not None:
            second = f"{name} published"
            check_new(second, module, {each.name: each.module for each in METHODS.values()})
            METHODS[second] = replace(declared, name=second, settings=published, tuned=False)
        return attach

    return declare


def geometric_grid(low: float, high: float, count: int) -> tuple[float, ...]:
    """`count` numbers from low to high at equal ratios, rounded to three significant digits."""
    return tuple(float(f"{low * (high / low) ** (index / (count - 1)):.3g}") for index in range(count))
