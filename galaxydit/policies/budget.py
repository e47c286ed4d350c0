"""Number of full steps for a speedup, and rounding of fractional positions to distinct steps."""

from collections.abc import Sequence


def full_step_count(steps: int, speedup: float) -> int:
    """Number of full steps among `steps`: `steps` / `speedup`, rounded, from 2 to `steps`."""
    return max(2, min(steps, round(steps / speedup)))


def distinct_steps(places: Sequence[float], steps: int) -> tuple[int, ...]:
    """Round the rising positions `places` to distinct, rising step indices; the first is 0, the last `steps` - 1."""
    chosen: list[int] = []
    for index, place in enumerate(places):
        low = chosen[-1] + 1 if chosen else 0
        chosen.append(min(max(round(place), low), steps - len(places) + index))
    chosen[0], chosen[-1] = 0, steps - 1
    return tuple(chosen)
