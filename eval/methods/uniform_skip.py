"""Control: evenly spaced full steps, between which the plugin extrapolates the output, without its correction.

At order 0 a reused step repeats the output of the last full step; order 1 extrapolates linearly.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from diffusers import DiffusionPipeline

from galaxydit import FixedSteps, GalaxyDiTConfig
from galaxydit.errors import check_number
from galaxydit.eval.methods.method import Setting, method
from galaxydit.pipelines.trial import Attached, accelerated

SPEEDUPS = (1.2, 1.35, 1.5, 1.75, 2.0, 2.25, 2.5, 2.75, 3.0, 3.25, 3.6, 4.0, 4.5)


def full_step_counts(steps: int) -> tuple[int, ...]:
    """`steps` / speedup for each of SPEEDUPS, rounded, at least 2, falling without repeats."""
    return tuple(sorted({max(2, round(steps / speedup)) for speedup in SPEEDUPS}, reverse=True))


def even_schedule(steps: int, count: int) -> tuple[int, ...]:
    """`count` step indices from the first to the last, as evenly spaced as integers allow."""
    check_number("full_steps", count, 2, steps)
    return tuple(round(index * (steps - 1) / (count - 1)) for index in range(count))


def following(pipe: DiffusionPipeline, schedule: Sequence[int], order: int) -> AbstractContextManager[Attached]:
    """Context in which the plugin computes the steps of `schedule` and extrapolates the others at `order`."""
    return accelerated(pipe, config=GalaxyDiTConfig(FixedSteps(tuple(schedule)), order=order, correction=False))


def _settings(steps: int) -> list[Setting]:
    return [{"steps": steps, "full_steps": count} for count in full_step_counts(steps)]


@method("uniform skip order 0", "control", _settings)
def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> AbstractContextManager[Attached]:
    return following(pipe, even_schedule(setting["steps"], setting["full_steps"]), 0)


@method("uniform skip order 1", "control", _settings)
def attach_order_1(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> AbstractContextManager[Attached]:
    return following(pipe, even_schedule(setting["steps"], setting["full_steps"]), 1)
