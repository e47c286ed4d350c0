"""The interface of a compared method: how it is attached, which settings it has, what it measures beforehand."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from diffusers import DiffusionPipeline

from galaxydit.eval.compare.registry import NEEDS, is_installed, slug_of, source_of
from galaxydit.pipelines.settings import GenerationSettings

Setting = Mapping[str, Any]
"""Parameters of a method as JSON data, such as {"threshold": 0.08}."""
Calibrate = Callable[[DiffusionPipeline, Sequence[str], GenerationSettings, int], Any]
"""Function from pipeline, calibration prompts, generation settings and seed to JSON data, the method's calibration.
Prompt i starts from the noise of seed + i."""


@dataclass(frozen=True)
class Attached:
    """A method that is attached to a pipeline.

    Attributes:
        bytes_held: returns the bytes of the tensors that the method keeps now, or None if the method does not expose
            them. It is called between transformer calls, so it must be cheap and must not change the method's state.
        reset: drops the method's state after the transformer was called without the pipeline, which otherwise resets
            it. None means the reset that every diffusers cache has, `transformer._reset_stateful_cache`.
    """

    bytes_held: Callable[[], int | None]
    reset: Callable[[], None] | None = None


@dataclass(frozen=True)
class Method:
    """One way to generate a video faster.

    Attributes:
        name: unique name for tables, without commas; `registry.py` lists it.
        settings: returns the candidate settings for a number of steps, from accurate to fast. A tuned method should
            cover speedups from 1.25 to 3.5; the comparison tries candidates on calibration prompts and scores the best
            of them.
        attach: returns a context manager for a pipeline, a setting and the result of `calibrate`. Inside it, the
            pipeline runs any number of generations with the method; afterwards the pipeline is bit-identical to before.
        calibrate: measures what the method needs beforehand, once, never on scored prompts. None if the method needs
            nothing; `attach` then gets None.
        generation: from the comparison's generation settings and a setting of the method, returns changed generation
            settings, for example with fewer steps. None if the method leaves the generation settings as they are.
        identity: returns what the results depend on besides setting, calibration, model and package versions, such as
            a hash of this project's code. A stored result with another identity is not reused. None if the results
            depend on nothing else.
        tuned: False scores all settings without tuning, for example settings that a paper published.
        with_profile: from a profile file (the plugin's calibration for a model) and a suffix of the name, returns the
            same method following that profile. None if the method follows no profile.
    """

    name: str
    settings: Callable[[int], Sequence[Setting]]
    attach: Callable[[DiffusionPipeline, Setting, Any], AbstractContextManager[Attached]]
    calibrate: Calibrate | None = None
    generation: Callable[[GenerationSettings, Setting], GenerationSettings] | None = None
    identity: Callable[[DiffusionPipeline], str] | None = None
    tuned: bool = True
    with_profile: Callable[[Path, str], "Method"] | None = None

    def published(self, settings: Callable[[int], Sequence[Setting]]) -> "Method":
        """The same method with published `settings`, all scored without tuning; its name ends with " published"."""
        return replace(self, name=f"{self.name} published", settings=settings, tuned=False)

    @property
    def slug(self) -> str:
        """The name in lower case with hyphens, for files and job files: "uniform-skip-order-0"."""
        return slug_of(self.name)

    @property
    def source(self) -> str:
        """The paper or project that the method comes from; "" if the registry does not list the method."""
        return source_of(self.name)

    @property
    def needs(self) -> str | None:
        """The optional module that the method imports; None if this package's own dependencies suffice."""
        return NEEDS.get(self.name)

    @property
    def is_available(self) -> bool:
        """Whether the optional package that the method needs is installed."""
        return is_installed(self.needs)


def geometric_grid(low: float, high: float, count: int) -> tuple[float, ...]:
    """Return `count` numbers from low to high at equal ratios, rounded to three significant digits."""
    return tuple(float(f"{low * (high / low) ** (index / (count - 1)):.3g}") for index in range(count))
