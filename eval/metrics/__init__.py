"""Quality of a video, alone or against the baseline of the same prompt and seed."""

from galaxydit.eval.metrics.registry import METRICS, measure, select
from galaxydit.eval.metrics.signal_to_noise import PSNR
from galaxydit.eval.metrics.structural import SSIM

__all__ = ["METRICS", "PSNR", "SSIM", "measure", "select"]
