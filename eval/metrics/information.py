"""Visual information fidelity."""

import math

import numpy as np

from galaxydit.eval.metrics.metric import Metric, Video, frame_by_frame
from galaxydit.eval.metrics.windows import gaussian_window, local_mean, local_moments

LUMA = np.array((0.299, 0.587, 0.114))  # of red, green and blue (ITU-R BT.601)
WINDOWS = tuple(gaussian_window(side, side / 5) for side in (17, 9, 5, 3))  # from the finest scale to the coarsest
NOISE = 2.0  # variance of the visual noise, in levels of 0..255
FLAT = 1e-10  # a smaller variance is rounding error


def _fidelity(frame: Video, reference_frame: Video) -> float:
    image, reference = (each.astype(np.float64) @ LUMA * 255 for each in (frame, reference_frame))
    preserved, reference_information = 0.0, 0.0
    for scale, window in enumerate(WINDOWS):
        if scale > 0:
            image, reference = local_mean(image, window)[::2, ::2], local_mean(reference, window)[::2, ::2]
        _, _, variance, image_variance, covariance = local_moments(reference, image, window)
        variance = np.where(variance < FLAT, 0, variance)
        slope = np.maximum(np.divide(covariance, variance, out=np.zeros_like(variance), where=variance > 0), 0)
        unexplained = np.maximum(image_variance - slope * covariance, 0)
        preserved += float(np.log1p(slope**2 * variance / (unexplained + NOISE)).sum())
        reference_information += float(np.log1p(variance / NOISE).sum())
    return preserved / reference_information if reference_information else math.nan


VIF = Metric(
    name="vif",
    title="VIF",
    high=math.inf,
    function=frame_by_frame(_fidelity),
    min_side=41,  # one window must fit into the coarsest scale
)
"""Visual information fidelity in the pixel domain, the mean over frames; 0 to 1, and above 1 for raised contrast.

sum log(1 + g^2 s_x^2 / (s_v^2 + n)) / sum log(1 + s_x^2 / n) over all windows of four scales of the luma in 0..255:
the information that the video preserves of the reference x, divided by the information in x. g = s_xy / s_x^2 is
the slope of y over x, s_v^2 = s_y^2 - g s_xy the unexplained variance, and n = 2 the variance of visual noise
(Sheikh and Bovik 2006, doi 10.1109/TIP.2005.859378). Frames with a flat reference have no value; nan if all are flat.
"""
