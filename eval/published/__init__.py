"""What others published: numbers of the real weights (`galaxydit.calibration.published`), and VBench's arithmetic."""

from galaxydit.calibration.published import NAME, Published, StepList, load_published

__all__ = ["NAME", "Published", "StepList", "load_published"]
