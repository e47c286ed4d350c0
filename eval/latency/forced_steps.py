"""The steps of a trajectory that are computed in full."""

import math
from dataclasses import dataclass

WARM_UP = 0.2  # share of the first steps that are always full: arXiv 2512.03451


@dataclass(frozen=True)
class ForcedSteps:
    """The number of steps of a trajectory, and the indices of the full ones, ascending from 0."""

    steps: int
    full: tuple[int, ...]


def evenly_forced(steps: int, fraction: float) -> ForcedSteps:
    """Full steps at warm-up and last step, the others evenly spaced, `fraction` of all steps together.

    Raises ValueError for a fraction that warm-up and last step exceed, or above 1.
    """
    warm_up = max(2, math.ceil(round(steps * WARM_UP, 9)))
    count = round(steps * fraction)
    least = min(steps, warm_up + 1)
    if not least <= count <= steps:
        raise ValueError(
            f"fraction={fraction:g} is not allowed: expected a number from {least / steps:g} to 1 at {steps} steps, "
            f"because {warm_up} warm-up steps and the last one are always full; pass for example 0.5"
        )
    between = steps - 1 - warm_up
    free = count - least
    spaced = [warm_up + math.floor((index + 1) * between / (free + 1)) for index in range(free)]
    return ForcedSteps(steps, tuple(sorted({*range(warm_up), *spaced, steps - 1})))


def alternating(steps: int) -> ForcedSteps:
    """For timing single steps: two full steps, which extrapolation needs, then reused and full ones in alternation."""
    return ForcedSteps(steps, (0, *range(1, steps, 2)))
