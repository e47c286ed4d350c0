"""Peak signal-to-noise ratio."""

from galaxydit.eval.metrics.metric import Metric, float_pair
from galaxydit.pipelines import psnr as signal_to_noise

PSNR = Metric(
    name="psnr",
    title="PSNR",
    unit="dB",
    high=signal_to_noise.HIGHEST_PSNR,
    function=lambda video, reference, prompt: signal_to_noise.psnr(*float_pair(video, reference)),
)
"""Peak signal-to-noise ratio in dB, 10 log10(1 / MSE) with the MSE over all frames; higher is closer.

From 0 for black against white to 120, which stands for equal videos. The mean over the whole video comes before the
logarithm, so that a few equal frames cannot hide bad ones. Raises ValueError for bad or unequal shapes.
"""
