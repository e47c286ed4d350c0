"""Full steps of Wan2.1 planned on surrogates, for the settings that its authors recommend.

A surrogate (`surrogate/`) replaces the real weights: a model of independent directions fitted to published curvature.
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
"""Better than order 0 with correction under both distributions of `DISTRIBUTIONS`;
`python -m galaxydit.eval.studies.corrections` measures both rules on wan-tiny. Because `largest_ahead` is 1, a slope
measured over neighbouring steps is not followed over many steps: a surrogate has neither rounding nor interacting
directions, which spoil such slopes in a model."""
FLOW_SHIFTS = (3.0, 5.0, 8.0)
FARTHEST_MOVE = 3  # steps
LEAST_GAIN = 1e-3  # dB


@cache
def published_surrogates() -> tuple[Surrogate, ...]:
    """A surrogate of Wan2.1-T2V-1.3B for each distribution."""
    curvature = published_curvature(load_published())
    return tuple(Surrogate(distribution, curvature) for distribution in DISTRIBUTIONS.values())


def expected_levels(full: FullSteps, rule: Rule = RULE, steps: int = 50) -> tuple[float, ...]:
    """`Surrogate.level` of the full steps `full` of `steps`, dB: for each flow shift, one level per distribution."""
    computed = frozenset(full)
    return tuple(
        surrogate.level(computed, rule, flow_shift, steps)
        for flow_shift in FLOW_SHIFTS
        for surrogate in published_surrogates()
    )


@cache
def expected_level(full: FullSteps) -> float:
    """The level of the mean square error over all flow shifts and distributions, dB, for the schedule `full`.

    A level above 33 dB, which is not credible, hardly counts if another flow shift or distribution has a lower level.
    """
    return -10 * log10(fmean(10 ** (-level / 10) for level in expected_levels(full)))


def improved(full: FullSteps, fixed: int) -> tuple[FullSteps, float]:
    """The schedule that hill climbing reaches from `full`, and its `expected_level`.

    Each move shifts one full step by at most `FARTHEST_MOVE` steps to a reused step, and is kept if the level rises.
    The first `fixed` full steps and the last full step are not moved.
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
    """The schedules in which the full step `step` has moved, but not among the first `fixed` steps, nearest first."""
    moves = [distance * sign for distance in range(1, FARTHEST_MOVE + 1) for sign in (1, -1)]
    return [
        tuple(sorted({*full, step + move} - {step}))
        for move in moves
        if step + move not in full and fixed <= step + move < full[-1]
    ]


def planned(starts: Mapping[int, FullSteps], fixed: int) -> dict[int, tuple[FullSteps, float]]:
    """For each number of full steps, the best schedule that hill climbing finds, and its `expected_level`.

    It starts from the schedule of that number in `starts`, and from the schedule found for the next larger number less
    the full step whose removal costs the least level. The first `fixed` full steps and the last full step stay.
    """
    best: dict[int, tuple[FullSteps, float]] = {}
    for count in sorted(starts, reverse=True):
        tried = [starts[count]]
        if count + 1 in best:
            larger = best[count + 1][0]
            tried.append(max((tuple(x for x in larger if x != step) for step in larger[fixed:-1]), key=expected_level))
        best[count] = max((improved(start, fixed) for start in tried), key=lambda plan: plan[1])
    return best
