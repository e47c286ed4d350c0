"""The interfaces of metrics of videos and of their sound, and helpers for the metrics in the files beside this one."""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from galaxydit.errors import refusal
from galaxydit.pipelines.flac import FULL_SCALE, levels_of
from galaxydit.pipelines.video import Sound, check_frames, to_float

Video = NDArray[Any]  # `(frames, height, width, 3)`, uint8 or floats in [0, 1]
Samples = NDArray[np.float64]  # `(channels, samples)` in [-1, 1], rounded to the 24 bits of a FLAC file


@dataclass(frozen=True, kw_only=True)
class Quality:
    """What every metric tells of itself."""

    name: str  # key in `METRICS`, job files and results
    title: str
    unit: str = ""
    low: float = 0.0  # an infinite end of the range is open
    high: float = 1.0
    higher_is_better: bool = True
    best: float | None = None  # the best value, where both lower and higher ones are worse
    needs_reference: bool = True
    missing: Callable[[], str | None] = lambda: None  # what to install, and how, or None


@dataclass(frozen=True, kw_only=True)
class Metric(Quality):
    """A measure of quality of a video, the plain video of the same prompt and seed (None for itself) and the prompt."""

    function: Callable[[Video, Video | None, str], float]  # may return infinities, and nan where undefined
    min_frames: int = 1
    min_side: int = 1  # pixels of height and width
    # raises ValueError for a prompt that the metric cannot use
    check_prompt: Callable[[str], Any] = lambda prompt: None

    def __call__(self, video: Video, reference: Video | None = None, prompt: str = "") -> float:
        """The value. Raises ValueError for an unsuitable video, reference or prompt, and if something is missing."""
        check_frames(video, "video")
        if reason := self.missing() or self.refusal(video.shape, prompt):
            raise ValueError(f"{self.title} cannot be measured: {reason}")
        return self.function(video, reference, prompt)

    def refusal(self, shape: tuple[int, ...], prompt: str) -> str | None:
        """Why the metric has no value for this shape, `(frames, height, width, 3)`, and prompt, else None."""
        frames, height, width = shape[:3]
        if frames < self.min_frames:
            return f"it has {frames} frames: expected at least {self.min_frames}"
        if min(height, width) < self.min_side:
            return f"it has {height}x{width} pixels: expected sides of at least {self.min_side}"
        try:
            self.check_prompt(prompt)
        except ValueError as error:
            return str(error)
        return None


@dataclass(frozen=True, kw_only=True)
class SoundMetric(Quality):
    """A measure of the sound of a video against the sound of the plain video of the same prompt and seed."""

    function: Callable[[Samples, Samples, int], float]  # of the samples of both, and their rate in Hz

    def __call__(self, sound: Sound | None, reference: Sound | None) -> float:
        """The value. Raises ValueError for a missing or silent sound, and for another length, rate or channels."""
        reason = self.missing() or self.refusal(sound, reference)
        if reason or sound is None or reference is None:
            raise ValueError(f"{self.title} cannot be measured: {reason}")
        if sound.samples.shape != reference.samples.shape:
            shapes = sound.samples.shape, reference.samples.shape
            raise refusal("sounds", shapes, "equal (channels, samples)", "trim or mix one of them")
        if sound.rate != reference.rate:
            raise refusal("rates", (sound.rate, reference.rate), "equal ones", "resample one sound")
        samples = levels_of(sound) / FULL_SCALE
        others = levels_of(reference) / FULL_SCALE
        return self.function(samples, others, sound.rate)

    def refusal(self, sound: Sound | None, reference: Sound | None) -> str | None:
        """Why the metric has no value for these sounds, of which each may be missing or silent, else None."""
        if sound is None:
            if reference is None:
                return "the video has no sound"
            return "its sound is missing"
        if reference is None:
            return "the sound of the plain video is missing"
        if not levels_of(sound).any():
            return "its sound is silent"
        if not levels_of(reference, "reference").any():
            return "the sound of the plain video is silent"
        return None


def float_pair(video: Video, reference: Video | None) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Both as float32 in [0, 1]. Raises GalaxyDiTError without a reference and for unequal shapes."""
    if reference is None:
        raise refusal("reference", None, "the video to compare with", "pass the baseline's frames")
    if video.shape != reference.shape:
        raise refusal("shapes", (video.shape, reference.shape), "equal ones", "trim or resize one video")
    return to_float(video, "video"), to_float(reference, "reference")


def frame_by_frame(
    compare: Callable[[Video, Video], float], threads: int = 1
) -> Callable[[Video, Video | None, str], float]:
    """A `Metric.function`: the mean of `compare` over frames, `(height, width, 3)` float32 in [0, 1], without nan.

    With `threads` above 1, `compare` must keep no state.
    """

    def mean(video: Video, reference: Video | None, prompt: str) -> float:
        pair = float_pair(video, reference)
        with ThreadPoolExecutor(threads) as pool:
            values = np.array(list(pool.map(compare, *pair)))
        defined = values[~np.isnan(values)]
        return float(defined.mean()) if defined.size else math.nan

    return mean
