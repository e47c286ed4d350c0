"""Quality of a video and its sound, alone or against the baseline of the same prompt and seed."""

from galaxydit.eval.metrics.log_mel import LOG_MEL
from galaxydit.eval.metrics.registry import METRICS, measure, select
from galaxydit.eval.metrics.signal_to_noise import PSNR
from galaxydit.eval.metrics.structural import SSIM
from galaxydit.eval.metrics.waveform import RMS_RATIO, SI_SDR

__all__ = ["LOG_MEL", "METRICS", "PSNR", "RMS_RATIO", "SI_SDR", "SSIM", "measure", "select"]
