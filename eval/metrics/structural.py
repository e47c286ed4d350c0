"""Structural similarity at one scale (SSIM) and at five (MS-SSIM), by separable windows in float64.

float32 loses the variance of smooth areas to cancellation; torch's two-dimensional convolution takes fifty times as
long.
"""

import os

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import correlate1d

from galaxydit.eval.metrics.metric import Metric, frame_by_frame

Image = NDArray[np.float64]


def gaussian_window(side: int, sigma: float) -> Image:
    """One-dimensional Gaussian window `(side,)` with a sum of 1; `side` is odd, `sigma` is in pixels."""
    offsets = np.arange(side) - (side - 1) / 2
    weights = np.exp(-(offsets**2) / (2 * sigma**2))
    return np.asarray(weights / weights.sum())


def local_mean(image: Image, window: Image) -> Image:
    """Weighted mean in each square window inside the image `(height, width, ...)`, side - 1 pixels smaller."""
    inside = slice(len(window) // 2, -(len(window) // 2))
    rows = correlate1d(image, window, axis=0)[inside]
    return np.asarray(correlate1d(rows, window, axis=1)[:, inside])


def local_moments(x: Image, y: Image, window: Image) -> tuple[Image, Image, Image, Image, Image]:
    """Means of x and y, variances (at least 0) and covariance in each window inside the images."""
    mean_x, mean_y = local_mean(x, window), local_mean(y, window)
    variance_x = np.maximum(local_mean(x * x, window) - mean_x**2, 0)
    variance_y = np.maximum(local_mean(y * y, window) - mean_y**2, 0)
    return mean_x, mean_y, variance_x, variance_y, local_mean(x * y, window) - mean_x * mean_y


WINDOW = gaussian_window(11, 1.5)
C1, C2 = 0.01**2, 0.03**2  # keep the quotients finite for black and flat areas
THREADS = min(8, os.cpu_count() or 1)  # a GPU waits for the metrics of its video; each thread takes 100 MB at 480x832
SCALE_WEIGHTS = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333)  # from the finest to the coarsest


def _compare(x: Image, y: Image) -> tuple[float, float]:
    """SSIM of two frames in [0, 1], and its product of contrast and structure, means over windows and colours."""
    moments = local_moments(x.astype(np.float64), y.astype(np.float64), WINDOW)
    mean_x, mean_y, variance_x, variance_y, covariance = moments
    contrast = (2 * covariance + C2) / (variance_x + variance_y + C2)
    luminance = (2 * mean_x * mean_y + C1) / (mean_x**2 + mean_y**2 + C1)
    return float((luminance * contrast).mean()), float(contrast.mean())


def _compare_at_scales(x: Image, y: Image) -> float:
    product = 1.0
    for weight in SCALE_WEIGHTS[:-1]:
        product *= max(0.0, _compare(x, y)[1]) ** weight
        x, y = _halve(x), _halve(y)
    return product * max(0.0, _compare(x, y)[0]) ** SCALE_WEIGHTS[-1]


def _halve(image: Image) -> Image:
    """Means of 2x2 pixels; an odd last row or column is dropped."""
    even = image[: image.shape[0] // 2 * 2, : image.shape[1] // 2 * 2]
    return (even[::2, ::2] + even[1::2, ::2] + even[::2, 1::2] + even[1::2, 1::2]) / 4


SSIM = Metric(
    name="ssim",
    title="SSIM",
    low=-1.0,
    function=frame_by_frame(lambda x, y: _compare(x, y)[0], THREADS),
    min_side=len(WINDOW),
)
"""Structural similarity, the mean over frames; from -1 to 1, which means equal.

(2 m_x m_y + c1)(2 s_xy + c2) / ((m_x^2 + m_y^2 + c1)(s_x^2 + s_y^2 + c2)) with local means m and covariances s of
each colour under a Gaussian window of 11 pixels and sigma 1.5 that lies inside the frame, c1 = 0.01^2, c2 = 0.03^2
(Wang et al. 2004, doi 10.1109/TIP.2003.819861).
"""

MS_SSIM = Metric(
    name="ms_ssim",
    title="MS-SSIM",
    function=frame_by_frame(_compare_at_scales, THREADS),
    min_side=len(WINDOW) * 2 ** (len(SCALE_WEIGHTS) - 1),  # one window must fit into the coarsest scale
)
"""Multi-scale structural similarity, the mean over frames; from 0 to 1, which means equal.

cs_1^w1 cs_2^w2 cs_3^w3 cs_4^w4 ssim_5^w5, where scale i + 1 is scale i averaged over 2x2 pixels, cs is the mean of
SSIM's contrast and structure factor (2 s_xy + c2) / (s_x^2 + s_y^2 + c2) and ssim_5 the SSIM at the coarsest scale,
both cut off below 0, with window and constants as in `SSIM` (Wang, Simoncelli and Bovik 2003, doi
10.1109/ACSSC.2003.1292216).
"""
