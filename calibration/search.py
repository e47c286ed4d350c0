"""Exact search for the best schedule (rising indices of full steps) of each number of full steps on recordings."""

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

WARMUP = 2
"""Number of first steps that every plan computes, because order 1 needs two full steps and early errors grow most."""

FullSteps = tuple[int, ...]


def planned_schedules(
    model: ScheduleError, propagation: ErrorPropagation, counts: Sequence[int], order: Order
) -> dict[int, FullSteps]:
    """By number of full steps, the best schedule on recordings that are `balanced` at `counts`."""
    # Rounding is left out: after the first reused step, full steps differ from the plain ones by rounding, too.
    model = balanced(model, propagation, counts, order)
    return best_schedules(model, len(model.sigmas), propagation, warmup=WARMUP, order=order)


def best_schedules(
    model: ScheduleError, most: int, propagation: ErrorPropagation, *, warmup: int = 1, order: Order = 1
) -> dict[int, FullSteps]:
    """By number of full steps up to `most`, the schedule with the least mean square error of the final latent.

    The first `warmup` steps, the model's `switch` and the last step are computed. Errors of different reuse intervals
    add incoherently, and each depends on three neighbouring full steps, so dynamic programming over pairs is exact.
    """
    errors = interval_errors(model, propagation, order)
    steps, switch = len(errors), model.switch
    # best[at, gap, used]: least error of a schedule whose `used` full steps end with `at - gap` and `at`; before[...]
    # is the gap before `at - gap` in it.
    best = np.full((steps, LONGEST_GAP + 1, most + 1), np.inf)
    before = np.zeros(best.shape, dtype=int)
    best[0, 0, 1] = 0.0
    for at in range(steps - 1):
        longest = 1 if at + 1 < warmup else min(LONGEST_GAP, (switch if at < switch else steps - 1) - at)
        for gap in range(1, longest + 1):
            totals = best[at, :, :-1] + errors[at, :, gap, None]
            before[at + gap, gap, 1:] = totals.argmin(axis=0)
            best[at + gap, gap, 1:] = totals.min(axis=0)
    found = {}
    for used in range(1, most + 1):
        gap = int(best[-1, :, used].argmin())
        if np.isfinite(best[-1, gap, used]):
            at, schedule = steps - 1, [steps - 1]
            for left in range(used, 1, -1):
                at, gap = at - gap, int(before[at, gap, left])
                schedule.append(at)
            found[used] = tuple(reversed(schedule))
    return found


def interval_errors(model: ScheduleError, propagation: ErrorPropagation, order: Order = 1) -> Array:
    """Mean square error of the final latent from the steps between the full steps `step` and `step` + `gap`.

    It is `(step, gap before, gap)`, where the full step before lies `gap before` steps earlier (0: none), and 0 where
    no step is reused or a full step would lie outside the generation.
    """
    steps = len(model.sigmas)
    errors = np.zeros((steps, LONGEST_GAP + 1, LONGEST_GAP + 1))
    places, rows = [], []
    for at in range(steps):
        sensitivity = propagation.sensitivity(model.sigmas[at])
        for before in range(min(LONGEST_GAP, at) + 1):
            for gap in range(2, min(LONGEST_GAP, steps - 1 - at) + 1):
                places.append((at, before, gap))
                rows.append(sensitivity * model.interval_error(at - before if before else None, at, at + gap, order))
    if rows:
        stacked = np.array(rows)
        squares = np.einsum("ij,ij->i", stacked @ model.mean_products, stacked)
        errors[tuple(np.array(places).T)] = np.maximum(0.0, squares)
    return errors


def balanced(model: ScheduleError, propagation: ErrorPropagation, counts: Sequence[int], order: Order) -> ScheduleError:
    """`model` with each recording weighted by the inverse of its error under the schedules of `counts` full steps.

    Sensitivities differ by a factor of 30, and the gradient of a mean of logarithms, the PSNR, weights recordings so.
    """
    for _ in range(ROUNDS):
        schedules = best_schedules(model, max(counts), propagation, warmup=WARMUP, order=order)
        errors = [
            model.final_error(schedules[count], propagation, order=order, coherence=0.0)
            for count in counts
            if count in schedules
        ]
        inverse = [1 / np.maximum(error, 1e-30) for error in errors if error.max() > 0]
        if not inverse:
            break
        model = model.weighted(np.mean([each / each.sum() for each in inverse], axis=0))
    return model
