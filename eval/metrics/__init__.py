"""Quality of a video, by itself or against the baseline of the same prompt and seed."""

from galaxydit.eval.metrics.metric import Metric, Score
from galaxydit.eval.metrics.registry import METRICS, Measurement, measure, select
from galaxydit.eval.metrics.signal_to_noise import psnr
from galaxydit.eval.metrics.structural import ms_ssim, ssim

__all__ = ["METRICS", "Measurement", "Metric", "Score", "measure", "ms_ssim", "psnr", "select", "ssim"]
