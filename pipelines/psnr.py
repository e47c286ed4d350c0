"""Peak signal-to-noise ratio of two videos."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from galaxydit.errors import GalaxyDiTError, refusal

HIGHEST_PSNR = 120.0  # dB; stands for equal videos, because JSON has no infinity


def psnr(video: NDArray[Any], reference: NDArray[Any]) -> float:
    """10 log10(1 / MSE) of equal shapes in [0, 1], in dB, from 0 to 120, which stands for equal videos.

    MSE in float64 over the whole video, so perfect frames cannot hide bad ones. Raises GalaxyDiTError for unequal
    shapes and for NaN or infinities.
    """
    if video.shape != reference.shape:
        raise refusal("shapes", (video.shape, reference.shape), "equal ones", "trim or resize one video")
    error = float(np.mean(np.subtract(video, reference, dtype=np.float64) ** 2))
    if not math.isfinite(error):  # max() below would take NaN for equal videos
        raise nan_error("a video")
    return -10 * math.log10(max(10 ** (-HIGHEST_PSNR / 10), error))


def nan_error(name: str) -> GalaxyDiTError:
    """The error for a video `name` that holds NaN."""
    return GalaxyDiTError(
        f"{name} with NaN is not allowed: expected numbers; generate again in a wider dtype, such as float32, or with "
        "less guidance, because the model or its decoder has overflowed"
    )
