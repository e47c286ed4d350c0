"""Peak signal-to-noise ratio."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

HIGHEST_PSNR = 200.0  # dB, replaces infinity in files, because JSON has no infinities


def psnr(video: NDArray[Any], reference: NDArray[Any]) -> float:
    """Peak signal-to-noise ratio in dB: -10 log10 of the mean square error over all frames at once.

    Args:
        video, reference: floats in [0, 1] of the same shape, `(frames, height, width, 3)`.

    Returns a number from 0, for black against white, to infinity, for equal videos. The mean over the whole video is
    taken before the logarithm, so a few perfect frames cannot hide bad ones.

    Raises:
        ValueError: unequal shapes.
    """
    if video.shape != reference.shape:
        raise ValueError(
            f"shapes={video.shape}, {reference.shape} are not allowed: expected equal ones; trim or resize one video"
        )
    mean_square = float(np.mean(np.subtract(video, reference, dtype=np.float64) ** 2))
    return math.inf if mean_square == 0 else -10 * math.log10(mean_square)
