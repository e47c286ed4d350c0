"""What the arena asks of a method: how it is attached, which settings it offers, what it measures beforehand."""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from diffusers import DiffusionPipeline

from galaxydit.pipelines.settings import GenerationSettings

Setting = Mapping[str, Any]
"""JSON-able knobs of one method, such as {"threshold": 0.08}."""


@dataclass(frozen=True)
class Attached:
    """A method at work on a pipeline.

    bytes_held: bytes of the tensors that the method keeps right now, None where it cannot be told. The arena asks after
        every transformer call and reports the largest answer, so it must be cheap and change nothing.
    """

    bytes_held: Callable[[], int | None]


@dataclass(frozen=True)
class Method:
    """One way to generate faster.

    Attributes:
        name: for people; unique in the arena.
        source: the paper or project that it comes from.
        settings: candidate settings for a number of steps, from faithful to fast, wide enough for 1.25x to 3.5x. The
            arena tries all of them on the calibration prompts and scores only those that serve best.
        attach: given pipeline, setting and calibration, a context manager inside which the pipeline runs with the
            method, for any number of generations; afterwards the pipeline is as it was, bit for bit.
        calibrate: given pipeline, calibration prompts, generation settings and seed (prompt i starts from the noise of
            seed + i), what the method has to measure beforehand, as JSON-able data. Called once, never on scored
            prompts. None for a method that measures nothing; `attach` then gets None as calibration.
        generation: the generation settings under a setting, for a method that changes them (fewer steps). None leaves
            them as they are.
        identity: what the results depend on besides settings, calibration, model and package versions, such as a
            profile; finished results of another identity are not used again. None where there is nothing.
        needs: a module that must be importable, where it is no dependency of this package.
    """

    name: str
    source: str
    settings: Callable[[int], Sequence[Setting]]
    attach: Callable[[DiffusionPipeline, Setting, Any], AbstractContextManager[Attached]]
    calibrate: Callable[[DiffusionPipeline, Sequence[str], GenerationSettings, int], Any] | None = None
    generation: Callable[[GenerationSettings, Setting], GenerationSettings] | None = None
    identity: Callable[[DiffusionPipeline], str] | None = None
    needs: str | None = None

    @property
    def slug(self) -> str:
        """The name in small letters with hyphens, as files and job files use it: "uniform-skip-order-0"."""
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")

    @property
    def is_available(self) -> bool:
        """Whether the optional package that it needs is installed."""
        return self.needs is None or find_spec(self.needs) is not None
