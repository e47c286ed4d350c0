"""Decision rules on numbers: a rule gets an observation of a step and decides whether the step is reused or computed.

A full step is a computed step. "The authors" are those of the method that the rule belongs to.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

CONDITIONAL, UNCONDITIONAL = "cond", "uncond"  # the names of Wan's guidance branches


@dataclass(frozen=True)
class StepObservation:
    """The input of a rule that decides a step. Sizes are means of absolute values, at least 0.

    The watched tensor is the `signal` of `under_rule`: the latent, the time embedding before or after its projection,
    or the first block's output. Without a signal, the changes of the watched tensor are None.

    Attributes:
        step: index of the step, from 0.
        steps: number of steps of the generation.
        guidance_scale: of classifier-free guidance; 1 without guidance.
        branch: the guidance branch that is called, CONDITIONAL or UNCONDITIONAL.
        change_size: size of the watched tensor's change since the previous step; None at the first step.
        size: size of the watched tensor at the previous step; 1 where `change_size` is None.
        change_since_full: relative L1 change of the watched tensor since the last full step; None before the first full
            step, and always for the signal "latent".
        output_size: size of the output of the last full step; None before the first full step.
        slope: size of the output's change / size of the latent's change between the last two full steps; None before
            the second full step. `output_size` and `slope` are known only for the signal "latent" with a `predict` of
            `under_rule`.
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
        """Relative L1 change of the watched tensor since the previous step; None where `change_size` is None."""
        return None if self.change_size is None else self.change_size / max(self.size, 1e-12)


class Rule(Protocol):
    """Decides the steps of one generation in order; each generation gets a new rule."""

    def decide(self, observation: StepObservation) -> bool:
        """True to reuse this step, False to compute it."""


class AccumulationRule:
    """Reuse while the estimated costs since the last full step sum to less than `threshold`.

    `estimate` gets the observation of a step and returns the cost of reusing the step, such as the estimated relative
    change of the output since the previous step. A cost below 0 counts as 0; at a cost of None the step is computed.
    The first `first` and the last `last` steps are always computed.
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
    """Compute the steps with an index in `full`, and reuse the others.

    If `unconditional` is given, it replaces `full` in the unconditional branch; `under_rule` then needs `joint=False`,
    which lets each guidance branch decide for itself.
    """

    def __init__(self, full: Collection[int], unconditional: Collection[int] | None = None) -> None:
        self.full = {CONDITIONAL: full, UNCONDITIONAL: full if unconditional is None else unconditional}

    def decide(self, observation: StepObservation) -> bool:
        return observation.step not in self.full[observation.branch]


def alignment(change: float, change_between: float) -> float:
    """Coefficient, from 1 to 2, of the extrapolation through the last two full steps (DiCache, arXiv 2508.17356).

    A residual is what the block stack added to its input in a full step. A reused step adds older residual +
    coefficient * (newer residual - older residual). The probe is what the first block alone adds to its input.

    Args:
        change: size of the probe's change from the older full step to the current step.
        change_between: size of the probe's change from the older to the newer full step.
    """
    return min(2.0, max(1.0, change / max(change_between, 1e-12)))


def is_kept_full(observation: StepObservation, first: int, last: int) -> bool:
    """Whether a step is among the first `first` or the last `last` steps, which are always computed."""
    return observation.step < first or observation.step >= observation.steps - last


def share_of_steps(steps: int, share: float) -> int:
    """The number of steps that is nearest to `share` of `steps`, at least one.

    It scales numbers of steps that the authors give for 50 steps.
    """
    return max(1, round(steps * share))


def warm_ups(steps: int, share: float) -> list[int]:
    """Candidate numbers of warm-up steps, the first steps that are always computed, largest first.

    They are the authors' `share` of the steps, and one step.
    """
    return sorted({share_of_steps(steps, share), 1}, reverse=True)
