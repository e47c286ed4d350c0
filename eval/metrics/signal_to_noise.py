"""Peak signal-to-noise ratio (PSNR)."""

from galaxydit.eval.metrics.metric import Metric, float_pair
from galaxydit.pipelines import psnr as signal_to_noise

PSNR = Metric(
    name="psnr",
    title="PSNR",
    unit="dB",
    high=signal_to_noise.HIGHEST_PSNR,
    function=lambda video, reference, prompt: signal_to_noise.psnr(*float_pair(video, reference)),
)
"""PSNR in dB with the MSE over all frames, from 0 for black against white to 120, which stands for equal videos."""
