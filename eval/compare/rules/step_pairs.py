"""Tables over pairs of steps: a value for reusing an earlier full step at a later one."""

from collections.abc import Callable

import numpy as np

LONGEST_GAP = 16  # steps; an older full step is not reused

Pairs = list[list[float]]
"""Row t holds the values of step t for the steps t - 1, t - 2, ... before it, at most LONGEST_GAP of them."""


def over_pairs(steps: int, value: Callable[[int, int], float]) -> Pairs:
    """The table of value(earlier, step), rounded to six significant digits."""
    return [
        [float(f"{value(step - gap, step):.6g}") for gap in range(1, min(step, LONGEST_GAP) + 1)]
        for step in range(steps)
    ]


def mean_of(tables: list[Pairs]) -> Pairs:
    """The mean of tables of equal shape."""
    return [[float(value) for value in np.mean(rows, axis=0)] for rows in zip(*tables, strict=True)]


def at(table: Pairs, earlier: int, step: int) -> float | None:
    """The value of a pair; None if the gap is longer than the table."""
    gap = step - earlier
    return table[step][gap - 1] if 1 <= gap <= len(table[step]) else None
