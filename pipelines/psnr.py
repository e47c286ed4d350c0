"""Peak signal-to-noise ratio of two videos."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

HIGHEST_PSNR = 120.0  # dB; stands for equal videos, because JSON has no infinity
LOWEST_ERROR = 10 ** (-HIGHEST_PSNR / 10)


def psnr(video: NDArray[Any], reference: NDArray[Any]) -> float:
    """PSNR in dB, 10 log10(1 / MSE), with the float64 mean over all frames and at most 120 dB.

    Args:
        video, reference: arrays of equal shape with values in [0, 1].
    """
    error = float(np.mean((video - reference) ** 2, dtype=np.float64))
    return -10 * math.log10(max(LOWEST_ERROR, error))
