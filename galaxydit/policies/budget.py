"""How many steps a speedup allows to compute, and how places for them become steps."""

import math
from collections.abc import Sequence

from galaxydit.errors import GalaxyDiTError, check_number


def check_request(speedup: float | None, max_error: float | None, threshold: float | None) -> None:
    """Raise GalaxyDiTError for wishes out of range, and for a threshold together with one of the others."""
    if threshold is None:
        if speedup is not None or max_error is not None:
            check_budget(speedup, max_error, reused_cost=0.0)
        return
    check_number("threshold", threshold, 0.0)
    if speedup is not None or max_error is not None:
        raise GalaxyDiTError("threshold is given together with speedup or max_error; leave one of them out")


def check_budget(speedup: float | None, max_error: float | None, reused_cost: float) -> None:
    """Raise GalaxyDiTError for numbers out of range, and for a speedup that the cost of reused steps forbids."""
    if speedup is None and max_error is None:
        raise GalaxyDiTError("speedup and max_error are both None: expected one of them; pass for example speedup=2.0")
    if speedup is not None:
        check_number("speedup", speedup, 1.0)
    if max_error is not None:
        check_number("max_error", max_error, 0.0)
    check_number("reused_cost", reused_cost, 0.0, 1.0)
    if speedup is not None and speedup * reused_cost >= 1:
        raise GalaxyDiTError(
            f"speedup={speedup:g} is not allowed: expected less than {1 / reused_cost:.1f}, because a reused step "
            f"still costs {reused_cost:.3f} of a full one; choose a proxy that is read earlier"
        )


def full_share(speedup: float, reused_cost: float) -> float:
    """Share of steps to compute for a speedup, where a reused step costs `reused_cost` of a full one."""
    return (1 / speedup - reused_cost) / (1 - reused_cost)


def full_step_count(steps: int, speedup: float | None, reused_cost: float) -> int:
    """Number of steps to compute out of `steps`, at least 2; all of them without a speedup."""
    if speedup is None:
        return steps
    return max(2, min(steps, round(steps * full_share(speedup, reused_cost))))


def distinct_steps(places: Sequence[float], steps: int) -> tuple[int, ...]:
    """The steps nearest to fractional places, rising and all different, the first and the last step among them."""
    chosen: list[int] = []
    for index, place in enumerate(places):
        low = chosen[-1] + 1 if chosen else 0
        chosen.append(min(max(round(place), low), steps - len(places) + index))
    chosen[0], chosen[-1] = 0, steps - 1
    return tuple(chosen)


def is_finite_pair(pair: Sequence[float]) -> bool:
    """Whether this is a sequence of two finite numbers."""
    is_pair = isinstance(pair, Sequence) and len(pair) == 2
    return is_pair and all(isinstance(value, int | float) and math.isfinite(value) for value in pair)
