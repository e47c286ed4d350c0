"""Decision rules on numbers: a rule gets an observation of a step and decides whether the step is reused."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

CONDITIONAL, UNCONDITIONAL = "cond", "uncond"  # the names of Wan's guidance branches


@dataclass(frozen=True)
class StepObservation:
    """The input of a rule. Sizes are means of absolute values; changes are of the rule's signal, None without one.

    change_size: of the change since the previous step, None at the first step; size: at the previous step, else 1.
    change_since_full: relative L1 change since the last full step, None before it and for the signal "latent".
    output_size: of the output of the last full step; slope: size of the output's change / of the latent's change
        between the last two full steps. Both are None until then, and known only for the signal "latent" with a
        `predict`.
    """

    step: int
    steps: int
    guidance_scale: float = 1.0
    branch: str = CONDITIONAL
    change_size: float | None = None
    size: float = 1.0
    change_since_full: float | None = None
    output_size: float | None = None
    slope: float | None = None

    @property
    def change(self) -> float | None:
        """Relative L1 change of the signal since the previous step."""
        return None if self.change_size is None else self.change_size / max(self.size, 1e-12)


class StepRule(Protocol):
    """Decides the steps of one generation in order."""

    def decide(self, observation: StepObservation) -> bool:
        """True to reuse this step, False to compute it."""


class AccumulationRule:
    """Reuse while the costs since the last full step sum to less than `threshold`.

    `estimate` returns the cost of reusing a step; below 0 counts as 0, and None computes the step. The first `first`
    and the last `last` steps are computed.
    """

    def __init__(
        self, threshold: float, first: int, last: int, estimate: Callable[[StepObservation], float | None]
    ) -> None:
        self.threshold, self.first, self.last, self.estimate = threshold, first, last, estimate
        self.accumulated = 0.0

    def decide(self, observation: StepObservation) -> bool:
        cost = None if is_kept_full(observation, self.first, self.last) else self.estimate(observation)
        if cost is not None and self.accumulated + max(0.0, cost) < self.threshold:
            self.accumulated += max(0.0, cost)
            return True
        self.accumulated = 0.0
        return False


class ScheduleRule:
    """Compute the steps in `full`, in the unconditional branch those in `unconditional` if given.

    The latter needs `joint=False` of `under_rule`.
    """

    def __init__(self, full: Collection[int], unconditional: Collection[int] | None = None) -> None:
        self.full = {CONDITIONAL: full, UNCONDITIONAL: full if unconditional is None else unconditional}

    def decide(self, observation: StepObservation) -> bool:
        return observation.step not in self.full[observation.branch]


def alignment(change: float, change_between: float) -> float:
    """Coefficient in [1, 2] of the extrapolation through two full steps (DiCache, arXiv 2508.17356).

    `change` is the size of the probe's change since the older full step, `change_between` that between the two.
    """
    return min(2.0, max(1.0, change / max(change_between, 1e-12)))


def is_kept_full(observation: StepObservation, first: int, last: int) -> bool:
    """Whether a step is among the first `first` or the last `last` steps."""
    return observation.step < first or observation.step >= observation.steps - last


def share_of_steps(steps: int, share: float) -> int:
    """The number of steps nearest to a share of `steps`, at least 1; it scales numbers given for 50 steps."""
    return max(1, round(steps * share))


def warm_ups(steps: int, share: float) -> list[int]:
    """Candidate numbers of first steps that are computed, largest first: the authors' share of the steps, and 1."""
    return sorted({share_of_steps(steps, share), 1}, reverse=True)
