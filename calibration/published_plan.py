"""Full steps of Wan2.1 planned on surrogates, for the settings that its authors recommend.

A surrogate (`surrogate/`) replaces the real weights: a model of independent directions fitted to published curvature.
There are two surrogates, one for each distribution of the clean values along a direction (`DISTRIBUTIONS`). A level is
the expected PSNR of a schedule on a surrogate at one flow shift, in dB up to a constant (`Surrogate.level`).

A schedule, `FullSteps`, is the rising indices of its full (computed) steps among 50. Its six levels, for three flow
shifts and two surrogates, become one `expected_level`: the level of the mean of their six mean square errors.
"""

from collections.abc import Mapping
from functools import cache
from math import log10
from statistics import fmean

from galaxydit.calibration.published import load_published
from galaxydit.calibration.search import FullSteps
from galaxydit.calibration.surrogate.directions import DISTRIBUTIONS
from galaxydit.calibration.surrogate.step_lists import published_curvature
from galaxydit.calibration.surrogate.surrogate import Rule, Surrogate

RULE = Rule(order=1, slope=0.7, largest_ahead=1.0, correction=0.75)
"""Better than order 0 with correction under both distributions of `DISTRIBUTIONS`,
and on wan-tiny (README.md). Because `largest_ahead` is 1, a slope
measured over neighbouring steps is not followed over many steps: a surrogate has neither rounding nor interacting
directions, which spoil such slopes in a model."""
FLOW_SHIFTS = (3.0, 5.0, 8.0)
FARTHEST_MOVE = 3  # steps
LEAST_GAIN = 1e-3  # dB


@cache
def published_surrogates() -> tuple[Surrogate, ...]:
    """Surrogates of Wan2.1-T2V-1.3B, one for each distribution of clean values in `DISTRIBUTIONS`, in their order."""
    curvature = published_curvature(load_published())
    return tuple(Surrogate(distribution, curvature) for distribution in DISTRIBUTIONS.values())


def expected_levels(full: FullSteps, rule: Rule = RULE, steps: int = 50) -> tuple[float, ...]:
    """The levels of the schedule that computes the steps `full` of `steps`, dB; `rule` predicts the other steps.

    There are six, one for each pair of the three flow shifts `FLOW_SHIFTS` and the two `published_surrogates`: the
    first flow shift with both surrogates, then the second, then the third.
    """
    computed = frozenset(full)
    return tuple(
        surrogate.level(computed, rule, flow_shift, steps)
        for flow_shift in FLOW_SHIFTS
        for surrogate in published_surrogates()
    )


@cache
def expected_level(full: FullSteps) -> float:
    """One level for the schedule `full` of 50 steps, dB: that of the mean square error, averaged over the three flow
    shifts and two surrogates of `expected_levels`.

    A level far above the lowest hardly counts in this mean. So it does little harm that surrogates overrate schedules
    above 33 dB.
    """
    return -10 * log10(fmean(10 ** (-level / 10) for level in expected_levels(full)))


def improved(full: FullSteps, fixed: int) -> tuple[FullSteps, float]:
    """The schedule that hill climbing reaches from `full`, and its `expected_level` (see the module) in dB.

    Each move shifts one full step by at most `FARTHEST_MOVE` steps to the place of a reused step. It is kept if the
    expected level rises by more than `LEAST_GAIN`. The first `fixed` full steps and the last full step are not moved.
    """
    best, tried, rises = expected_level(full), {full}, True
    while rises:
        rises = False
        for step in full[fixed:-1]:
            for moved in neighbours(full, step, fixed):
                if moved not in tried:
                    tried.add(moved)
                    level = expected_level(moved)
                    if level > best + LEAST_GAIN:
                        full, best, rises = moved, level, True
                        break
    return full, best


def neighbours(full: FullSteps, step: int, fixed: int) -> list[FullSteps]:
    """The schedules that differ from `full` in the place of the full step `step` alone, nearest places first.

    The new place is at most `FARTHEST_MOVE` steps away, after the first `fixed` steps and before the last full step.
    """
    moves = [distance * sign for distance in range(1, FARTHEST_MOVE + 1) for sign in (1, -1)]
    return [
        tuple(sorted({*full, step + move} - {step}))
        for move in moves
        if step + move not in full and fixed <= step + move < full[-1]
    ]


def planned(starts: Mapping[int, FullSteps], fixed: int) -> dict[int, tuple[FullSteps, float]]:
    """For each number of full steps in `starts`, the best schedule that hill climbing finds, and its `expected_level`.

    The expected level combines the mean square errors at three flow shifts on two surrogates (see the module). There
    are up to two starts: the schedule in `starts`, and the schedule found for one more full step, less the full step
    whose removal costs the least level. The first `fixed` full steps and the last full step stay.
    """
    best: dict[int, tuple[FullSteps, float]] = {}
    for count in sorted(starts, reverse=True):
        tried = [starts[count]]
        if count + 1 in best:
            larger = best[count + 1][0]
            tried.append(max((tuple(x for x in larger if x != step) for step in larger[fixed:-1]), key=expected_level))
        best[count] = max((improved(start, fixed) for start in tried), key=lambda plan: plan[1])
    return best
