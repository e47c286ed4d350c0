"""The declaration of a compared method: how it is attached, which settings it has, what it measures beforehand."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from diffusers import DiffusionPipeline

from galaxydit.eval.methods.registry import is_installed, slug_of
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.trial import Attached

Setting = Mapping[str, Any]
"""Parameters of a method as JSON data, such as {"threshold": 0.08}."""
Calibrate = Callable[[DiffusionPipeline, Sequence[str], GenerationSettings, int], Any]
"""Function from pipeline, calibration prompts, generation settings and seed (that of the first prompt; each further
prompt adds 1) to JSON data, the method's calibration."""
AttachMethod = Callable[[DiffusionPipeline, Setting, Any], AbstractContextManager[Attached]]
"""Function from pipeline, setting and calibration to a context in which the pipeline generates with the method; after
it the pipeline is bit-identical to before."""


@dataclass(frozen=True)
class Method:
    """A compared method, whose declaration `method` documents."""

    name: str
    source: str
    settings: Callable[[int], Sequence[Setting]]
    attach: AttachMethod
    calibrate: Calibrate | None = None
    generation: Callable[[GenerationSettings, Setting], GenerationSettings] | None = None
    tuned: bool = True
    needs: str | None = None
    follows_profile: bool = False

    @property
    def slug(self) -> str:
        return slug_of(self.name)

    @property
    def is_available(self) -> bool:
        """Whether the optional package that the method needs is installed."""
        return is_installed(self.needs)


METHODS: dict[str, Method] = {}
"""The methods of the imported files by name; `registry.load_method` imports the file of a method."""


def method(
    name: str,
    source: str,
    settings: Callable[[int], Sequence[Setting]],
    *,
    published: Callable[[int], Sequence[Setting]] | None = None,
    calibrate: Calibrate | None = None,
    generation: Callable[[GenerationSettings, Setting], GenerationSettings] | None = None,
    tuned: bool = True,
    needs: str | None = None,
    follows_profile: bool = False,
) -> Callable[[AttachMethod], AttachMethod]:
    """Decorator that declares the function `attach` as a compared method.

    `name`, `source`, `tuned` and `needs` must be literals, because the command line reads them without torch.

    Args:
        name: unique, for tables, without commas.
        source: paper or project, "control", "this project" or "ablation".
        settings: candidate settings for a number of steps, from accurate to fast; a tuned method should cover speedups
            from 1.25 to 3.5.
        published: settings of "NAME published", a second method whose settings are scored without tuning.
        calibrate: measures what `attach` needs, once, never on scored prompts; by default nothing.
        generation: changes the generation settings for a setting, for example to fewer steps.
        tuned: False scores all settings without tuning.
        needs: optional module that the method imports.
        follows_profile: whether a setting may have "profile", the path of a profile file.
    """

    def declare(attach: AttachMethod) -> AttachMethod:
        declared = Method(name, source, settings, attach, calibrate, generation, tuned, needs, follows_profile)
        METHODS[name] = declared
        if published is not None:
            second = f"{name} published"
            METHODS[second] = replace(declared, name=second, settings=published, tuned=False)
        return attach

    return declare


def geometric_grid(low: float, high: float, count: int) -> tuple[float, ...]:
    """`count` numbers from low to high at equal ratios, rounded to three significant digits."""
    return tuple(float(f"{low * (high / low) ** (index / (count - 1)):.3g}") for index in range(count))
