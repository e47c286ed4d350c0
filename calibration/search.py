"""Exact search for the best schedule of each number of full steps on recorded generations.

A schedule is the indices of its full steps, rising. The steps between two full steps are reused (a reuse interval).
"""

from collections.abc import Sequence

import numpy as np

from galaxydit.calibration.recording import Array
from galaxydit.calibration.schedule_error import Order, ScheduleError
from galaxydit.profiles.evidence import ErrorPropagation

PLANNER_VERSION = 8
"""Raise it when a change to recording, schedule error, search or the correction of full steps can change a result;
older results are then void."""

ROUNDS = 2  # of weights and schedules; more change no schedule of wan-tiny
LONGEST_GAP = 12  # steps between two full steps

FullSteps = tuple[int, ...]


def best_schedules(
    model: ScheduleError,
    most: int,
    propagation: ErrorPropagation,
    *,
    warmup: int = 1,
    order: Order = 1,
    longest_gap: int = LONGEST_GAP,
) -> dict[int, tuple[FullSteps, float]]:
    """By number of full steps up to `most`, the schedule with the least final error, and this error.

    The final error is the mean square error of the final latent, averaged over the recordings of `model`. Errors of
    different reuse intervals add incoherently; `propagation` is their growth until the final latent. `order` is that of
    the predictions: 0 repeats the last full step, 1 extrapolates the last two. Each schedule computes the first
    `warmup` steps, the first step of a second transformer and the last step, and has at most `longest_gap` steps from
    one full step to the next. Numbers of full steps without such a schedule are left out.
    """
    costs = interval_errors(model, propagation, order=order, longest_gap=longest_gap)
    return cheapest_schedules(costs, most, warmup=warmup, switch=model.switch)


def cheapest_schedules(
    costs: Array, most: int, *, warmup: int = 1, switch: int = 0
) -> dict[int, tuple[FullSteps, float]]:
    """By number of full steps up to `most`, the schedule with the least total cost, and this cost.

    Each schedule computes the first `warmup` steps, the step `switch`, which is the first step of a second transformer
    (0 without one), and the last step. `costs[step, gap before, gap]` is the cost of reusing the steps between the full
    steps `step` and `step` + `gap`, where the full step before `step` lies `gap before` steps earlier, or does not
    exist if `gap before` is 0. Costs of intervals add up, and no gap is longer than the array allows. The cost of an
    interval depends on the two full steps before it and on the full step after it, so dynamic programming over pairs of
    neighbouring full steps is exact. Numbers of full steps without such a schedule are left out.
    """
    steps, gaps = len(costs), costs.shape[2]
    # best[at, gap, used]: least cost of a schedule whose `used` full steps end with `at - gap` and `at`; before[...] is
    # the gap before `at - gap` in it.
    best = np.full((steps, gaps, most + 1), np.inf)
    before = np.zeros(best.shape, dtype=int)
    best[0, 0, 1] = 0.0
    for at in range(steps - 1):
        longest = 1 if at + 1 < warmup else min(gaps - 1, (switch if at < switch else steps - 1) - at)
        for gap in range(1, longest + 1):
            totals = best[at, :, :-1] + costs[at, :, gap, None]
            before[at + gap, gap, 1:] = totals.argmin(axis=0)
            best[at + gap, gap, 1:] = totals.min(axis=0)
    found = {}
    for used in range(1, most + 1):
        gap = int(best[-1, :, used].argmin())
        if np.isfinite(total := best[-1, gap, used]):
            at, schedule = steps - 1, [steps - 1]
            for left in range(used, 1, -1):
                at, gap = at - gap, int(before[at, gap, left])
                schedule.append(at)
            found[used] = (tuple(reversed(schedule)), float(total))
    return found


def interval_errors(
    model: ScheduleError, propagation: ErrorPropagation, *, order: Order = 1, longest_gap: int = LONGEST_GAP
) -> Array:
    """Mean square error of the final latent that each possible reuse interval causes, `(step, gap before, gap)`.

    It is averaged over the recordings of `model`, which calculates the errors of schedules from recordings. The
    interval lies between the full step `step` and the full step `gap` steps later. The full step before `step` lies
    `gap before` steps earlier; a `gap before` of 0 means that there is none. The indices of both gaps are the gaps
    themselves, so their axes have the size `longest_gap` + 1, where `longest_gap` is the largest number of steps from
    one full step to the next. The error is 0 if `gap` is 0 or 1, because no step is reused then, and where a full step
    would lie outside the generation. `propagation` is the growth of errors until the final latent. `order` is 0 if a
    reused step repeats the last full step, and 1 if it extrapolates the last two.
    """
    steps = len(model.sigmas)
    errors = np.zeros((steps, longest_gap + 1, longest_gap + 1))
    places, rows = [], []
    for at in range(steps):
        sensitivity = propagation.sensitivity(model.sigmas[at])
        for before in range(min(longest_gap, at) + 1):
            for gap in range(2, min(longest_gap, steps - 1 - at) + 1):
                places.append((at, before, gap))
                rows.append(sensitivity * model.interval_error(at - before if before else None, at, at + gap, order))
    if rows:
        stacked = np.array(rows)
        squares = np.einsum("ij,ij->i", stacked @ model.mean_products, stacked)
        errors[tuple(np.array(places).T)] = np.maximum(0.0, squares)
    return errors


def balanced(
    model: ScheduleError, propagation: ErrorPropagation, counts: Sequence[int], *, warmup: int = 1, order: Order = 1
) -> ScheduleError:
    """`model` with each recording weighted by the inverse of its error under the schedules of `counts` full steps.

    Sensitivities differ by a factor of 30 between recordings, so a plain mean follows the worst of them; the mean PSNR
    is a mean of logarithms, and its gradient weights each recording so.
    """
    for _ in range(ROUNDS):
        schedules = best_schedules(model, max(counts), propagation, warmup=warmup, order=order)
        errors = [
            model.final_error(schedules[count][0], propagation, order=order, coherence=0.0)
            for count in counts
            if count in schedules
        ]
        inverse = [1 / np.maximum(error, 1e-30) for error in errors if error.max() > 0]
        if not inverse:
            break
        model = model.weighted(np.mean([each / each.sum() for each in inverse], axis=0))
    return model
