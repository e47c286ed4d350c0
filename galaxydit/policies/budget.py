"""Number of full steps for a speedup, and rounding of fractional positions to distinct steps."""

from collections.abc import Sequence


def full_step_count(steps: int, speedup: float) -> int:
    """Number of full steps among `steps`: `steps` / `speedup`, rounded, at most `steps`, but never below 2."""
    return max(2, min(steps, round(steps / speedup)))


def distinct_steps(places: Sequence[float], steps: int) -> tuple[int, ...]:
    """Round 2 or more rising positions `places` to distinct step indices; the first is 0, the last `steps` - 1."""
    chosen: list[int] = []
    for index, place in enumerate(places):
        low = chosen[-1] + 1 if chosen else 0
        chosen.append(min(max(round(place), low), steps - len(places) + index))
    chosen[0], chosen[-1] = 0, steps - 1
    return tuple(chosen)
