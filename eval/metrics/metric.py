"""The interface of a metric, and helpers for the files beside this one.

A video is `(frames, height, width, 3)`, uint8 or floats in [0, 1]; its reference is a video of the same shape.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from galaxydit.pipelines.video import check_frames, to_float

Video = NDArray[Any]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Metric:
    """One measure of quality. Call it with a video, its reference (None for a baseline) and its prompt.

    Attributes:
        name: key in `METRICS`, in job files and in results.
        title, unit: for tables; the unit may be empty.
        low, high: ends of the range; an infinite end is open.
        higher_is_better: direction of improvement.
        needs_reference: whether it compares with another video.
        function: from video, reference and prompt to the value, which may be infinite, and nan where it is undefined.
        missing: returns what to install, and how; None if nothing is missing.
        refusal: returns why a video of this shape and prompt has no value; None if it has one.
    """

    name: str
    title: str
    function: Callable[[Video, Video | None, str], float]
    unit: str = ""
    low: float = 0.0
    high: float = 1.0
    higher_is_better: bool = True
    needs_reference: bool = True
    missing: Callable[[], str | None] = lambda: None
    refusal: Callable[[Shape, str], str | None] = lambda shape, prompt: None

    def __call__(self, video: Video, reference: Video | None = None, prompt: str = "") -> float:
        """Raises ValueError for an unsuitable video, reference or prompt, and if something is not installed."""
        check_frames(video, "video")
        reason = self.missing() or self.refusal(video.shape, prompt)
        if reason:
            raise ValueError(f"{self.title} cannot be measured: {reason}")
        return self.function(video, reference, prompt)


def float_pair(video: Video, reference: Video | None) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Both as float32 in [0, 1]; raises ValueError if there is no reference or the shapes differ."""
    if reference is None:
        raise ValueError("reference is None, allowed is the video to compare with: pass the baseline's frames")
    if video.shape != reference.shape:
        raise ValueError(f"video has shape {video.shape} and reference {reference.shape}, allowed are equal shapes")
    return to_float(video, "video"), to_float(reference, "reference")


def frame_by_frame(compare: Callable[[Video, Video], float]) -> Callable[[Video, Video | None, str], float]:
    """The function of a metric that compares frames `(height, width, 3)`, float32 in [0, 1], with their reference: the
    mean over the frames that have a value, nan without any.
    """

    def mean(video: Video, reference: Video | None, prompt: str) -> float:
        values = np.array([compare(*pair) for pair in zip(*float_pair(video, reference), strict=True)])
        defined = values[~np.isnan(values)]
        return float(defined.mean()) if defined.size else math.nan

    return mean


def sides_from(pixels: int) -> Callable[[Shape, str], str | None]:
    """The refusal of videos with a smaller side."""

    def refusal(shape: Shape, prompt: str) -> str | None:
        height, width = shape[1:3]
        if min(height, width) >= pixels:
            return None
        return f"videos are {height}x{width}, allowed are sides from {pixels} pixels"

    return refusal
