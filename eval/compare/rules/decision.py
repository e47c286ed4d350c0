"""What a policy sees and says: plain numbers in, compute or reuse out."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Seen:
    """What is known when a step is decided. All sizes are means of absolute values, at least 0.

    Attributes:
        step: index of the step, from 0.
        steps: number of steps of the generation.
        guidance_scale: of classifier-free guidance; 1 where there is none.
        moved: size of the watched tensor's change since the step before; None where there is no step before.
        size: size of the watched tensor at the step before.
        drift: size of its change since the last full step / its size then; None before the first full step.
        output_size: size of the output of the last full step; None before the first.
        slope: size of the change of the output / size of the change of the latent, between the last two full steps;
            None before the second.
    """

    step: int
    steps: int
    guidance_scale: float = 1.0
    moved: float | None = None
    size: float = 1.0
    drift: float | None = None
    output_size: float | None = None
    slope: float | None = None

    @property
    def change(self) -> float | None:
        """Relative L1 change of the watched tensor since the step before."""
        return None if self.moved is None else self.moved / max(self.size, 1e-12)


class Rule(Protocol):
    """Decides the steps of one generation, in order; a new generation gets a new rule."""

    def decide(self, seen: Seen) -> bool:
        """Whether this step is reused."""


class AccumulationRule:
    """Reuse while what reuse is estimated to cost, summed since the last full step, stays below `threshold`.

    `estimate` gives the cost of a step, or None where it cannot tell, and then the step is computed; below 0 it counts
    as 0. The `first` and the `last` steps are always computed.
    """

    def __init__(self, threshold: float, first: int, last: int, estimate: Callable[[Seen], float | None]) -> None:
        self.threshold, self.first, self.last, self.estimate = threshold, first, last, estimate
        self.accumulated = 0.0

    def decide(self, seen: Seen) -> bool:
        cost = None if is_kept_full(seen, self.first, self.last) else self.estimate(seen)
        if cost is not None and self.accumulated + max(0.0, cost) < self.threshold:
            self.accumulated += max(0.0, cost)
            return True
        self.accumulated = 0.0
        return False


def alignment(moved: float, moved_between: float) -> float:
    """How far to go from one full step to the next one and beyond, 1 to 2: as far as a probe has, moved / moved_between
    (DiCache, arXiv 2508.17356).
    """
    return min(2.0, max(1.0, moved / max(moved_between, 1e-12)))


def is_kept_full(seen: Seen, first: int, last: int) -> bool:
    """Whether a step belongs to the `first` or the `last` ones, which are always computed."""
    return seen.step < first or seen.step >= seen.steps - last


def share_of_steps(steps: int, share: float) -> int:
    """A share of the steps, rounded, at least one: what authors give for 50 steps, at any number."""
    return max(1, round(steps * share))


def warm_ups(steps: int, share: float) -> list[int]:
    """How many first steps to compute in any case: the share that authors give, and one."""
    return sorted({share_of_steps(steps, share), 1}, reverse=True)


def check_steps(seen: Seen, calibrated: int) -> None:
    """Raise ValueError where a rule was calibrated for another number of steps."""
    if seen.steps != calibrated:
        raise ValueError(
            f"steps is {seen.steps}, allowed is {calibrated}, for which this method was calibrated; calibrate it anew"
        )
