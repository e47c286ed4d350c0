"""Controls: fixed schedules, between whose full steps the plugin extrapolates the output, without its correction.

`uniform skip` spaces the full steps evenly; at order 0 a reused step repeats the output of the last full step, order 1
extrapolates linearly. `searched schedule` is found on calibration prompts by dynamic programming
(`calibration/search.py`), for order 1 and as if errors at all noise levels counted alike.
"""

from collections.abc import Sequence
from typing import Any

from diffusers import DiffusionPipeline

from galaxydit import FixedSteps, GalaxyDiTConfig
from galaxydit.calibration.generation_observer import record_sample
from galaxydit.calibration.search import ScheduleError, best_schedules
from galaxydit.errors import check_number
from galaxydit.eval.methods.method import Context, Setting, method
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.trial import accelerated
from galaxydit.profiles.evidence import ErrorPropagation

SPEEDUPS = (1.2, 1.35, 1.5, 1.75, 2.0, 2.25, 2.5, 2.75, 3.0, 3.25, 3.6, 4.0, 4.5)


def full_step_counts(steps: int) -> tuple[int, ...]:
    """`steps` / speedup for each of SPEEDUPS, rounded, at least 2, falling without repeats."""
    return tuple(sorted({max(2, round(steps / speedup)) for speedup in SPEEDUPS}, reverse=True))


def even_schedule(steps: int, count: int) -> tuple[int, ...]:
    """`count` step indices from the first to the last, as evenly spaced as integers allow."""
    check_number("full_steps", count, 2, steps)
    return tuple(round(index * (steps - 1) / (count - 1)) for index in range(count))


def search(
    pipe: DiffusionPipeline, prompts: Sequence[str], settings: GenerationSettings, seed: int
) -> dict[str, tuple[int, ...]]:
    """By number of full steps, as text, the best schedule as step indices.

    Where some gap must exceed `LONGEST_GAP`, the schedule is evenly spaced instead.
    """
    recordings = [record_sample(pipe, prompt, settings, seed + index)[0] for index, prompt in enumerate(prompts)]
    steps, counts = recordings[0].steps, full_step_counts(recordings[0].steps)
    schedules = best_schedules(ScheduleError(recordings), max(counts), ErrorPropagation())
    return {str(count): schedules[count] if count in schedules else even_schedule(steps, count) for count in counts}


def _settings(steps: int) -> list[Setting]:
    return [{"steps": steps, "full_steps": count} for count in full_step_counts(steps)]


def _following(pipe: DiffusionPipeline, schedule: Sequence[int], order: int) -> Context:
    return accelerated(pipe, config=GalaxyDiTConfig(FixedSteps(tuple(schedule)), order=order, correction=False))


@method("uniform skip order 0", "control", _settings)
def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> Context:
    return _following(pipe, even_schedule(setting["steps"], setting["full_steps"]), 0)


@method("uniform skip order 1", "control", _settings)
def attach_order_1(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> Context:
    return _following(pipe, even_schedule(setting["steps"], setting["full_steps"]), 1)


@method(
    "searched schedule",
    "control",
    lambda steps: [{"full_steps": count} for count in full_step_counts(steps)],
    calibrate=search,
)
def attach_searched(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> Context:
    return _following(pipe, calibration[str(setting["full_steps"])], 1)
