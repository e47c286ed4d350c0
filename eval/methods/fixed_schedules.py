"""Controls: fixed schedules, between whose full steps the plugin extrapolates the output, without its correction.

`uniform skip` spaces the full steps evenly; at order 0 a reused step repeats the output of the last full step, order 1
extrapolates linearly. `searched schedule` is found on calibration prompts by dynamic programming
(`calibration/search.py`), for order 1 and as if errors at all noise levels counted alike. `DPCache` is its planner, as
arXiv 2602.22654 describes it, on the same recordings and reuse: its costs, of features, are taken of the output.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from diffusers import DiffusionPipeline

from galaxydit import FixedSteps, GalaxyDiTConfig
from galaxydit.calibration.generation_observer import record_sample
from galaxydit.calibration.recording import Array, Recording, as_differences, error_coefficients
from galaxydit.calibration.search import (
    LONGEST_GAP,
    FullSteps,
    ScheduleError,
    best_schedules,
    cheapest_schedules,
    intervals,
)
from galaxydit.errors import check_number
from galaxydit.eval.methods.method import Context, Setting, method
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.trial import accelerated
from galaxydit.profiles.evidence import ErrorPropagation

DPCACHE_WARMUP = 3  # first steps that its examples compute
SPEEDUPS = (1.2, 1.35, 1.5, 1.75, 2.0, 2.25, 2.5, 2.75, 3.0, 3.25, 3.6, 4.0, 4.5)


def full_step_counts(steps: int) -> tuple[int, ...]:
    """`steps` / speedup for each of SPEEDUPS, rounded, at least 2, falling without repeats."""
    return tuple(sorted({max(2, round(steps / speedup)) for speedup in SPEEDUPS}, reverse=True))


def even_schedule(steps: int, count: int) -> tuple[int, ...]:
    """`count` step indices from the first to the last, as evenly spaced as integers allow."""
    check_number("full_steps", count, 2, steps)
    return tuple(round(index * (steps - 1) / (count - 1)) for index in range(count))


Plan = Callable[[Sequence[Recording], int], Mapping[int, FullSteps]]
"""Function from recordings and a number of full steps to the schedules of up to this number."""


def planned(
    pipe: DiffusionPipeline, prompts: Sequence[str], settings: GenerationSettings, seed: int, plan: Plan
) -> dict[str, FullSteps]:
    """By number of full steps, as text, the schedule that `plan` finds, as step indices.

    Where some gap must exceed `LONGEST_GAP`, the schedule is evenly spaced instead.
    """
    recordings = []
    for index, prompt in enumerate(prompts):
        recording, *_ = record_sample(pipe, prompt, settings, seed + index)
        recordings.append(recording)
    steps = recordings[0].steps
    counts = full_step_counts(steps)
    schedules = plan(recordings, max(counts))
    by_count = {}
    for count in counts:
        by_count[str(count)] = tuple(schedules.get(count) or even_schedule(steps, count))
    return by_count


def by_final_error(recordings: Sequence[Recording], most: int) -> Mapping[int, FullSteps]:
    return best_schedules(ScheduleError(recordings), most, ErrorPropagation())


def by_path_costs(recordings: Sequence[Recording], most: int) -> Mapping[int, FullSteps]:
    return cheapest_schedules(path_costs(recordings), most, warmup=DPCACHE_WARMUP)


search = partial(planned, plan=by_final_error)


def path_costs(recordings: Sequence[Recording]) -> Array:
    """DPCache's cost of the steps between two full steps, indexed as `search.interval_errors`: the sum over these steps
    of the rms error of the output that is predicted from the full step and the one before, mean of the recordings."""
    sigmas = recordings[0].sigmas
    products = np.array([recording.products for recording in recordings])
    costs = np.zeros((len(sigmas), LONGEST_GAP + 1, LONGEST_GAP + 1))
    for at, before, gap in intervals(len(sigmas)):
        older = at - before if before else None
        error = as_differences(error_coefficients(sigmas, at + gap - 1, at, older))
        # rms error of the last reused step, for each recording: sqrt(d' M d) with the products M
        errors = np.sqrt(np.maximum(0.0, products @ error @ error))
        costs[at, before, gap] = costs[at, before, gap - 1] + errors.mean()
    return costs


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


def _searched_settings(steps: int) -> list[Setting]:
    return [{"full_steps": count} for count in full_step_counts(steps)]


@method("searched schedule", "control", _searched_settings, calibrate=search)
@method("DPCache", "DPCache, arXiv 2602.22654", _searched_settings, calibrate=partial(planned, plan=by_path_costs))
def attach_searched(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> Context:
    return _following(pipe, calibration[str(setting["full_steps"])], 1)
