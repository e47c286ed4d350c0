"""What a policy is: a frozen value that decides at each step whether to compute or to reuse."""

import math
from dataclasses import dataclass
from typing import Any, Protocol

FEW_STEPS = 8
"""Generations of this many steps or fewer are always computed: their steps differ too much."""
IS_SHORT = "too few steps to reuse any"
NO_HISTORY = "nothing to reuse yet"
UNSERVED = "too few steps for the profile"
CAP = "cap on consecutive reuse"


@dataclass(frozen=True)
class Observation:
    """What is known when a step is decided; the controller adds the limits, the last four.

    Attributes:
        step: index of the step, from 0.
        steps: number of steps of the generation.
        distance: relative L1 distance of the proxy since the previous step, at least 0; None where none was measured.
        has_history: whether every guidance branch has a full step to reuse.
        sigmas: noise level of every step of the generation, falling; None where the scheduler does not give any.
        error: relative error that the prediction would have had at the last full step; None where none was made.
        first: index of the step that the generation began with; above 0 where a video is denoised from its middle.
        warmup_steps, keep_last, max_consecutive: limits of the configuration, in steps.
        consecutive: steps reused in a row up to now.
    """

    step: int
    steps: int
    distance: float | None
    has_history: bool
    sigmas: tuple[float, ...] | None = None
    error: float | None = None
    first: int = 0
    warmup_steps: int = 1
    keep_last: int = 1
    max_consecutive: int | None = None
    consecutive: int = 0

    @property
    def forced(self) -> str | None:
        """Why the limits forbid reuse at this step; None where they allow it."""
        if self.steps <= FEW_STEPS:
            return IS_SHORT
        if self.step < self.first + self.warmup_steps:
            return "warm-up"
        if self.step >= self.steps - self.keep_last:
            return "last steps"
        if not self.has_history:
            return NO_HISTORY
        if self.max_consecutive is not None and self.consecutive >= self.max_consecutive:
            return CAP
        return None

    @property
    def known_distance(self) -> float | None:
        """The distance if it is a finite number."""
        return self.distance if self.distance is not None and math.isfinite(self.distance) else None

    @property
    def noise_levels(self) -> tuple[float, ...]:
        """`sigmas`, or evenly spaced ones where the scheduler gives none."""
        return self.sigmas or tuple(1 - step / self.steps for step in range(self.steps))


@dataclass(frozen=True)
class Decision:
    """One decision.

    Attributes:
        reuse: whether the step is reused.
        reason: why, in words for the report.
        accumulated: proxy distance (or mapped error) summed since the last full step.
        expected_error: expected relative error of the prediction at this step; None where it is unknown.
    """

    reuse: bool
    reason: str
    accumulated: float = 0.0
    expected_error: float | None = None


class Policy(Protocol):
    """All that the engine asks of a policy."""

    @property
    def reads_proxy(self) -> bool:
        """Whether decisions need the proxy's distance."""

    @property
    def history_length(self) -> int:
        """0 if nothing is ever reused, 1 otherwise."""

    @property
    def learns_errors(self) -> bool:
        """Whether `Observation.error` is used, so that the engine must measure it."""

    def decide(self, observation: Observation, state: Any | None = None) -> tuple[Decision, Any]:
        """Decide one step; `state` is what the previous call returned, None at the first."""
