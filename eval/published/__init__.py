"""What is published about the real weights, for every room that measures beside it."""

from galaxydit.eval.published.numbers import NAME, Published, StepList, load_published

__all__ = ["NAME", "Published", "StepList", "load_published"]
