"""The interface of policies: frozen values that decide at each step whether to compute or to reuse.

A computed step is also called a full step. A reused step predicts the transformer's output, or what its block stack
adds to its input, from earlier full steps. The engine (`galaxydit.runtime.engine`) carries the decisions out. A proxy
is a cheap tensor whose change from step to step, its distance, shows how much the output changes.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Protocol

from galaxydit.errors import check_count, check_number, refusal

FEW_STEPS = 8
"""Generations of this many steps or fewer are computed in full, because neighbouring steps differ too much."""


class Reason(Enum):
    """Why a step was computed or reused; the value is the text for people."""

    FEW_STEPS = "too few steps to reuse any"
    UNSERVED = "too few steps for the profile"
    WARM_UP = "warm-up"
    LAST_STEPS = "last steps"
    NO_HISTORY = "a branch, a condition or the latent is new"
    CAP = "cap on consecutive reuse"
    SCHEDULE = "schedule"
    ZERO_THRESHOLD = "threshold is 0"
    ABOVE_THRESHOLD = "above threshold"
    BELOW_THRESHOLD = "below threshold"
    NO_DISTANCE = "no distance"
    UNKNOWN_ERROR = "error not yet known"
    ABOVE_MAX_ERROR = "expected error above max_error"
    BELOW_MAX_ERROR = "expected error below max_error"
    CUSTOM = "decided by a custom policy"
    PROXY_NOT_READ = "the proxy was not read"
    NO_BRANCH_HISTORY = "this branch had nothing to reuse"
    OTHER_SAMPLE = "another sample is computed"
    UNKNOWN_CALL = "the call was not understood"
    DRAWN_NOISE = "what to reuse under the drawn noise is not known"
    OTHER_RANK = "a rank that shares the weights computes"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Limits:
    """Limits that the configuration (`galaxydit.GalaxyDiTConfig`) sets for policies.

    Attributes:
        warmup: share of the steps, at the start, that are always computed, in [0, 1], rounded up to at least one step.
        keep_last: number of last steps that are always computed, at least 0.
        max_consecutive: largest number of steps reused in a row, at least 1; None for no limit.

    Raises GalaxyDiTError for a value that is not allowed.
    """

    warmup: float = 0.2
    keep_last: int = 1
    max_consecutive: int | None = 4

    def __post_init__(self) -> None:
        check_number("warmup", self.warmup, minimum=0.0, maximum=1.0)
        check_count("keep_last", self.keep_last, minimum=0)
        if self.max_consecutive is not None:
            check_count("max_consecutive", self.max_consecutive, minimum=1)


def warmup_steps(steps: int, warmup: float) -> int:
    """Number of steps at the start that are always computed: the share `warmup` of `steps`, rounded up, at least 1."""
    return max(1, math.ceil(round(steps * warmup, 9)))


@dataclass(frozen=True)
class Observation:
    """The input of a policy's decision about one step. The `Controller` adds `limits` and `consecutive`.

    Attributes:
        step: index of the step, from 0.
        steps: number of steps of the generation, including those before `first`.
        distance: relative change of the proxy since the previous step, at least 0; None where it was not measured.
        has_history: whether every guidance branch has a full step to reuse.
        sigmas: noise level of every step of the generation, falling; None where the scheduler does not give any.
        error: relative L2 error that a prediction of the last full step would have had, the largest of the branches
            decided together. It is given once, at the step after this full step, if the policy `learns_errors`; None at
            other steps, and where the full step had no earlier one to predict it from.
        first: index of the step that the generation began with; above 0 where a video is denoised from its middle.
        limits: the configuration's warm-up, number of last steps and cap on steps reused in a row; `forced` applies
            them.
        consecutive: number of steps reused in a row before this one.
        branch, guidance_scale: the guidance branch of the call that is decided, the first one of a joint decision; 1
            without guidance.
        measured: the numbers that `Reuse.measure` returned at this branch's last full step.
    """

    step: int
    steps: int
    distance: float | None
    has_history: bool
    sigmas: tuple[float, ...] | None = None
    error: float | None = None
    first: int = 0
    limits: Limits = field(default_factory=Limits)
    consecutive: int = 0
    branch: str = ""
    guidance_scale: float = 1.0
    measured: Mapping[str, float] = field(default_factory=dict)

    @property
    def warmup_steps(self) -> int:
        """Number of steps, from `first` on, that are always computed: the share `limits.warmup` of the steps that the
        generation runs, rounded up, at least 1.
        """
        return warmup_steps(self.steps - self.first, self.limits.warmup)

    @property
    def forced(self) -> Reason | None:
        """Why this step must be computed: a limit, or no full step to reuse; None where it may be reused."""
        if self.step < self.first + self.warmup_steps:
            return Reason.WARM_UP
        if self.step >= self.steps - self.limits.keep_last:
            return Reason.LAST_STEPS
        if not self.has_history:
            return Reason.NO_HISTORY
        if self.limits.max_consecutive is not None and self.consecutive >= self.limits.max_consecutive:
            return Reason.CAP
        return None

    @property
    def known_distance(self) -> float | None:
        """The distance if it is a finite number, else None."""
        return self.distance if self.distance is not None and math.isfinite(self.distance) else None

    @property
    def noise_levels(self) -> tuple[float, ...]:
        """`sigmas`, or evenly spaced noise levels where the scheduler gives none."""
        return self.sigmas or tuple(1 - step / self.steps for step in range(self.steps))

    @property
    def sigma(self) -> float:
        """Noise level of the step: from `sigmas`, else from the evenly spaced `noise_levels`."""
        return self.noise_levels[self.step]


@dataclass(frozen=True)
class Decision:
    """The decision of a policy about one step.

    Attributes:
        reuse: True reuses the step, False computes it.
        reason: why the step is reused or computed.
        accumulated: proxy distance summed since the last full step; infinite where the distance is unknown, 0 for
            policies that read no proxy.
        expected_error: expected relative error of the prediction at this step; None where it is unknown.

    Raises GalaxyDiTError for a reason that is no `Reason`.
    """

    reuse: bool
    reason: Reason
    accumulated: float = 0.0
    expected_error: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.reason, Reason):
            raise refusal("reason", self.reason, "a Reason", "return for example Decision(True, Reason.CUSTOM)")


class Policy(Protocol):
    """The methods and attributes of a policy that the engine uses.

    `reads_proxy` says whether decisions need the proxy's distance, `reuses` whether any step can be reused, and
    `learns_errors` whether `Observation.error` is used. `decide` also returns a state: any value, which it receives at
    the next step. A policy respects the `Limits` of the configuration by itself: it must compute a step whose
    `Observation.forced` is not None. For example, a policy of your own that computes every third step, for
    `GalaxyDiTConfig(policy=EveryThird())`:

        class EveryThird:
            reads_proxy, reuses, learns_errors = False, True, False

            def decide(self, observation, state=None):
                reuse = observation.forced is None and observation.step % 3 > 0
                return Decision(reuse, observation.forced or Reason.CUSTOM), state
    """

    @property
    def reads_proxy(self) -> bool:
        """Whether decisions need the proxy's distance."""

    @property
    def reuses(self) -> bool:
        """Whether any step can be reused; if not, the engine stores nothing."""

    @property
    def learns_errors(self) -> bool:
        """Whether `decide` uses `Observation.error`, the relative error that a prediction of the last full step would
        have had, so that the engine must measure it at full steps.
        """

    def decide(self, observation: Observation, state: Any | None = None) -> tuple[Decision, Any]:
        """Decide one step. Returns the decision and the state for the next step, None if there is none.

        `state` is the state that was returned at the step before, and None at the first step.
        """


class Controller:
    """The decisions of one scope (one branch, or all branches jointly) for one sample in one generation.

    It adds the configuration's `Limits` (warm-up, last steps, steps reused in a row) to each observation, and carries
    the policy's state from step to step.
    """

    def __init__(self, policy: Policy, limits: Limits) -> None:
        self._policy = policy
        self._limits = limits
        self._state: Any = None
        self._consecutive = 0

    def decide(self, observation: Observation) -> Decision:
        """Add the `Limits` and the number of steps reused in a row to an observation, and let the policy decide.

        Raises GalaxyDiTError if the policy returns anything but a `Decision` and a state.
        """
        limited = replace(observation, limits=self._limits, consecutive=self._consecutive)
        result: Any = self._policy.decide(limited, self._state)  # the policy may be of a user
        if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], Decision)):
            cure = "return for example Decision(True, Reason.CUSTOM), state"
            raise refusal(f"{type(self._policy).__name__}.decide()", result, "a Decision and the next state", cure)
        decision, self._state = result
        self._consecutive = self._consecutive + 1 if decision.reuse else 0
        return decision
