"""What is published about the real weights, for calibration and for every room that measures beside it."""

from galaxydit.calibration.published.numbers import NAME, Published, StepList, load_published

__all__ = ["NAME", "Published", "StepList", "load_published"]
