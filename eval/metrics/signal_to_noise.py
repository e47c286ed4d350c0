"""Peak signal-to-noise ratio."""

import numpy as np

from galaxydit.eval.metrics.metric import Metric, Score, Video, float_pair
from galaxydit.pipelines import psnr as signal_to_noise


def _measure(video: Video, reference: Video | None, prompt: str) -> Score:
    frames = float_pair(video, reference)
    per_frame = [signal_to_noise.psnr(*pair) for pair in zip(*frames, strict=True)]
    return Score(signal_to_noise.psnr(*frames), np.array(per_frame))


PSNR = Metric(
    name="psnr",
    title="PSNR",
    unit="dB",
    high=signal_to_noise.HIGHEST_PSNR,
    function=_measure,
)
"""Peak signal-to-noise ratio in dB, 10 log10(1 / MSE) with the MSE over all frames; higher is closer.

From 0 for black against white to 120, which stands for equal videos. The mean over the whole video comes before the
logarithm, so that a few equal frames cannot hide bad ones. Raises ValueError for bad or unequal shapes.
"""
