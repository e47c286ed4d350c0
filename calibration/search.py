"""Exact search for the best schedule of each number of full steps on recorded generations."""

import numpy as np

from galaxydit.calibration.schedule_error import Array, Order, ScheduleError
from galaxydit.profiles.schema import ErrorPropagation

PLANNER_VERSION = 3
"""Raise it with every change to recording, schedule error or search that can change a schedule.

Results that were planned by another version are void."""

LONGEST_GAP = 12  # steps between two full steps

Schedule = tuple[int, ...]


def best_schedules(
    model: ScheduleError,
    most: int,
    propagation: ErrorPropagation,
    *,
    warmup: int = 1,
    order: Order = 1,
    longest_gap: int = LONGEST_GAP,
) -> dict[int, tuple[Schedule, float]]:
    """The best schedule for each number of full steps up to `most`, and its final error.

    The error is the mean square error of the final latent at `order` with incoherent intervals, averaged over the
    recordings. Schedules have no gap above `longest_gap` steps and compute the first `warmup` steps, the first step of
    a second transformer and the last step. Numbers of full steps without such a schedule are left out.
    """
    costs = interval_errors(model, propagation, order=order, longest_gap=longest_gap)
    return cheapest_schedules(costs, most, warmup=warmup, switch=model.switch)


def cheapest_schedules(
    costs: Array, most: int, *, warmup: int = 1, switch: int = 0
) -> dict[int, tuple[Schedule, float]]:
    """As `best_schedules`, for any costs that add up over reuse intervals, shaped like `interval_errors`.

    Each summand depends on the two full steps before the interval; so dynamic programming over pairs of neighbouring
    full steps is exact.
    """
    steps, longest_gap = len(costs), costs.shape[2] - 1
    # best[at, gap, used]: least cost of a schedule whose `used` full steps end with `at - gap` and `at`.
    best: dict[tuple[int, int, int], tuple[float, Schedule]] = {(0, 0, 1): (0.0, (0,))}
    for at in range(steps - 1):
        furthest = switch if at < switch else steps - 1
        for gap_before in range(longest_gap + 1):
            for used in range(1, most):
                state = best.get((at, gap_before, used))
                if state is None:
                    continue
                for gap in range(1, 2 if at + 1 < warmup else min(longest_gap, furthest - at) + 1):
                    total = state[0] + costs[at, gap_before, gap]
                    key = (at + gap, gap, used + 1)
                    known = best.get(key)
                    if known is None or total < known[0]:
                        best[key] = (total, (*state[1], at + gap))
    found: dict[int, tuple[Schedule, float]] = {}
    for (at, _, used), (total, schedule) in best.items():
        if at == steps - 1 and (used not in found or (total, schedule) < (found[used][1], found[used][0])):
            found[used] = (schedule, total)
    return found


def interval_errors(
    model: ScheduleError,
    propagation: ErrorPropagation,
    *,
    order: Order = 1,
    longest_gap: int = LONGEST_GAP,
) -> Array:
    """Final error at `order` of each possible reuse interval, `(step, gap before, gap)`.

    The interval lies between the full step `step` and the one `gap` steps later; the full step before it lies
    `gap before` steps earlier, or does not exist where that is 0.
    """
    steps = len(model.sigmas)
    errors = np.zeros((steps, longest_gap + 1, longest_gap + 1))
    for at in range(steps):
        sensitivity = propagation.sensitivity(model.sigmas[at])
        for before in range(0, min(longest_gap, at) + 1 if order else 1):
            for gap in range(2, min(longest_gap, steps - 1 - at) + 1):
                error = model.interval_error(at - before if before else None, at, at + gap, order)
                errors[at, before, gap] = sensitivity**2 * max(0.0, float(error @ model.mean_products @ error))
    return errors if order else np.repeat(errors[:, :1], longest_gap + 1, axis=1)
