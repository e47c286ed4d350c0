"""Tables of values for pairs of steps, measured beforehand, such as the error if a step reuses an earlier step."""

from collections.abc import Callable

from galaxydit.errors import refusal

LONGEST_GAP = 16  # steps; an older full step is not reused

Pairs = list[list[float]]
"""Row t holds the values of step t for the steps t - 1, t - 2, ... before it, at most LONGEST_GAP of them."""


def over_pairs(steps: int, value: Callable[[int, int], float]) -> Pairs:
    """The table of `value(earlier, step)` for all pairs of a generation of `steps` steps, at most LONGEST_GAP apart.

    Row `step`, from 0, holds the values for `earlier` = step - 1, step - 2 and so on, at most 16; row 0 is empty.
    """
    return [[value(step - gap, step) for gap in range(1, min(step, LONGEST_GAP) + 1)] for step in range(steps)]


def at(pairs: Pairs, earlier: int, step: int) -> float | None:
    """The value of a pair of steps in the table `pairs` of `over_pairs`.

    None if `earlier` is not before `step`, or more than LONGEST_GAP before it.
    """
    row, gap = pairs[step], step - earlier
    return row[gap - 1] if 0 < gap <= len(row) else None


def check_calibrated(steps: int, calibrated: int) -> None:
    """Raise GalaxyDiTError unless the `steps` of a generation equal those of the calibration, `calibrated`."""
    if steps != calibrated:
        raise refusal("steps", steps, f"{calibrated}, the steps of the method's calibration", "calibrate it anew")
