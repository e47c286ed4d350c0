"""The interface of a metric, and helpers for the metrics in the files beside this one."""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from galaxydit.errors import refusal
from galaxydit.pipelines.video import check_frames, to_float

Video = NDArray[Any]  # `(frames, height, width, 3)`, uint8 or floats in [0, 1]


@dataclass(frozen=True)
class Metric:
    """A measure of quality: a function of a video, a reference and the video's prompt.

    The reference is the video of the same prompt and seed without acceleration; None if the video is that one.

    Attributes:
        name: key in `METRICS`, in job files and in results.
        title, unit: for tables; the unit may be empty.
        low, high: ends of the range; an infinite end is open.
        higher_is_better: direction of improvement.
        needs_reference: whether the metric compares with another video.
        function: from video, reference and prompt to the value, which may be infinite, and nan where it is undefined.
        min_frames, min_side: smallest video, in frames and in pixels of height and width.
        check_prompt: raises ValueError for a prompt that the metric cannot use; its result is ignored.
        missing: returns what to install, and how; None if nothing is missing.
    """

    name: str
    title: str
    function: Callable[[Video, Video | None, str], float]
    unit: str = ""
    low: float = 0.0
    high: float = 1.0
    higher_is_better: bool = True
    needs_reference: bool = True
    min_frames: int = 1
    min_side: int = 1
    check_prompt: Callable[[str], Any] = lambda prompt: None
    missing: Callable[[], str | None] = lambda: None

    def __call__(self, video: Video, reference: Video | None = None, prompt: str = "") -> float:
        """The value for a video.

        Raises ValueError for an unsuitable video, reference or prompt, and if `missing` names something to install.
        """
        check_frames(video, "video")
        if reason := self.missing() or self.refusal(video.shape, prompt):
            raise ValueError(f"{self.title} cannot be measured: {reason}")
        return self.function(video, reference, prompt)

    def refusal(self, shape: tuple[int, ...], prompt: str) -> str | None:
        """Reason why the metric has no value for a video of this shape and prompt, else None.

        `shape` is that of a `Video`, `(frames, height, width, 3)`.
        """
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


def float_pair(video: Video, reference: Video | None) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Video and reference as float32 in [0, 1]. Raises GalaxyDiTError without a reference and for unequal shapes."""
    if reference is None:
        raise refusal("reference", None, "the video to compare with", "pass the baseline's frames")
    if video.shape != reference.shape:
        raise refusal("shapes", (video.shape, reference.shape), "equal ones", "trim or resize one video")
    return to_float(video, "video"), to_float(reference, "reference")


def frame_by_frame(
    compare: Callable[[Video, Video], float], threads: int = 1
) -> Callable[[Video, Video | None, str], float]:
    """A `Metric.function` that returns the mean over frames of `compare(frame, reference frame)`.

    The function takes video, reference and prompt. It ignores the prompt, and raises GalaxyDiTError if the reference is
    None or differs from the video in shape.

    Frames are `(height, width, 3)` float32 in [0, 1]. The mean leaves out values that are nan; it is nan if all are.
    `threads` frames are compared at the same time; with more than one thread, `compare` must keep no state.
    """

    def mean(video: Video, reference: Video | None, prompt: str) -> float:
        pair = float_pair(video, reference)
        with ThreadPoolExecutor(threads) as pool:
            values = np.array(list(pool.map(compare, *pair)))
        defined = values[~np.isnan(values)]
        return float(defined.mean()) if defined.size else math.nan

    return mean
