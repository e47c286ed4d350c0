"""Calibration: record generations, rank proxies, fit errors, plan speedups, verify, and build the profile."""

from galaxydit.calibration.calibration import Calibration, calibrate, read_prompts
from galaxydit.calibration.recording import Recording
from galaxydit.calibration.verify import VerifiedPrompt

__all__ = ["Calibration", "Recording", "VerifiedPrompt", "calibrate", "read_prompts"]
