"""Calibration: record trajectories, rank proxies, fit errors, plan speedups, and write the profile."""

from galaxydit.calibration.procedure import Calibration, calibrate, read_prompts, run_calibration

__all__ = ["Calibration", "calibrate", "read_prompts", "run_calibration"]
