"""Full steps of Wan2.1 planned on surrogates of the real weights, for the settings that its authors recommend."""

from collections.abc import Callable
from functools import cache
from statistics import fmean

from galaxydit.calibration.published import load_published
from galaxydit.calibration.search import FullSteps
from galaxydit.calibration.surrogate.directions import DISTRIBUTIONS
from galaxydit.calibration.surrogate.step_lists import published_curvature
from galaxydit.calibration.surrogate.surrogate import Rule, Surrogate

RULE = Rule(order=1, slope=0.7, largest_ahead=1.0, correction=0.75)
"""Better than order 0 corrected under both distributions; `python -m galaxydit.eval.studies.corrections` measures both
rules on wan-tiny. Because of the limit of 1, a slope measured over neighbouring steps is not followed over many: a
surrogate has neither rounding nor interacting directions, which spoil such slopes in a model."""
FLOW_SHIFTS = (3.0, 5.0, 8.0)
FARTHEST_MOVE = 3  # steps
LEAST_GAIN = 1e-3  # dB


@cache
def published_surrogates() -> tuple[Surrogate, ...]:
    """A surrogate of Wan2.1-T2V-1.3B for each distribution."""
    return tuple(Surrogate(one, published_curvature(load_published())) for one in DISTRIBUTIONS.values())


def expected_levels(full: FullSteps, rule: Rule = RULE, steps: int = 50) -> tuple[float, ...]:
    """`Surrogate.level` in dB by flow shift, and by distribution at each of them."""
    computed = frozenset(full)
    return tuple(
        surrogate.level(computed, rule, flow_shift, steps)
        for flow_shift in FLOW_SHIFTS
        for surrogate in published_surrogates()
    )


def improved(full: FullSteps, *, fixed: int, score: Callable[[FullSteps], float]) -> tuple[FullSteps, float]:
    """The schedule that hill climbing reaches from `full`, and its score.

    Each move takes one full step to a reused one at most `FARTHEST_MOVE` steps away, and stays if the score rises. The
    first `fixed` full steps and the last one stay.
    """
    best, tried, rises = score(full), {full}, True
    while rises:
        rises = False
        for step in full[fixed:-1]:
            for moved in neighbours(full, step, fixed):
                if moved not in tried:
                    tried.add(moved)
                    level = score(moved)
                    if level > best + LEAST_GAIN:
                        full, best, rises = moved, level, True
                        break
    return full, best


def neighbours(full: FullSteps, step: int, fixed: int) -> list[FullSteps]:
    """The schedules in which the full step `step` has moved, nearest first."""
    moves = [distance * sign for distance in range(1, FARTHEST_MOVE + 1) for sign in (1, -1)]
    return [
        tuple(sorted({*full, step + move} - {step}))
        for move in moves
        if step + move not in full and fixed <= step + move < full[-1]
    ]


def planned(full: FullSteps, fixed: int) -> tuple[FullSteps, float]:
    """The schedule of as many full steps as `full` that hill climbing finds from there, and its mean level in dB."""
    return improved(full, fixed=fixed, score=lambda schedule: fmean(expected_levels(schedule)))
