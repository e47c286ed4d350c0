"""The interface of policies: frozen values that decide at each step whether to compute or to reuse."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Protocol

from galaxydit.errors import check_count, check_number, plain_fields, refusal

FEW_STEPS = 8
"""Generations of this many steps or fewer are computed in full, because neighbouring steps differ too much."""
GENERAL_FEW_STEPS = 25
"""The same under the general schedule. On wan-tiny at 2x, plain steps of equal cost at the noise levels of its full
steps are better up to 20 steps, as good at 22 to 28, and worse at 30 (`python -m galaxydit.eval.short_generations`)."""


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
    UNKNOWN_CALL = "the loop is not declared"
    UNKNOWN_LATENT = "the latent cannot be compared with what the scheduler returned"
    DRAWN_NOISE = "what to reuse under the drawn noise is not known"
    OTHER_RANK = "a rank that shares the weights computes"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Limits:
    """Limits that the configuration sets for policies. Raises GalaxyDiTError for a value that is not allowed."""

    warmup: float = 0.2  # share of first steps that are always computed, rounded up to at least one step
    keep_last: int = 1  # last steps that are always computed
    max_consecutive: int | None = 4  # steps reused in a row; None for no limit

    def __post_init__(self) -> None:
        plain_fields(self)
        check_number("warmup", self.warmup, minimum=0.0, maximum=1.0)
        check_count("keep_last", self.keep_last, minimum=0)
        if self.max_consecutive is not None:
            check_count("max_consecutive", self.max_consecutive, minimum=1)


def warmup_steps(steps: int, warmup: float) -> int:
    """Number of steps at the start that are always computed: the share `warmup` of `steps`, rounded up, at least 1."""
    return max(1, math.ceil(round(steps * warmup, 9)))


@dataclass(frozen=True)
class Observation:
    """The input of a policy's decision about one step. The `Controller` adds `limits` and `consecutive`."""

    step: int  # from 0
    steps: int  # of the generation, including those before `first`
    distance: float | None  # of the proxy since the previous step; None where it was not measured
    has_history: bool  # every guidance branch has a full step to reuse
    sigmas: tuple[float, ...] | None = None  # noise level of every step, falling; None where the scheduler gives none
    # relative L2 error that a prediction of the last full step would have had, the largest of the branches, at the step
    # after it if the policy `learns_errors`; else None
    error: float | None = None
    first: int = 0  # step that the generation began with; above 0 where a video is denoised from its middle
    limits: Limits = field(default_factory=Limits)  # which `forced` applies
    consecutive: int = 0  # steps reused in a row before this one
    branch: str = ""  # of the call that is decided, the first one of a joint decision
    guidance_scale: float = 1.0  # 1 without guidance
    measured: Mapping[str, float] = field(default_factory=dict)  # by `Reuse.measure`, at the branch's last full step

    @property
    def warmup_steps(self) -> int:
        """Number of steps, from `first` on, that `limits.warmup` always computes."""
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
    """The decision of a policy about one step. Raises GalaxyDiTError for a reason that is no `Reason`."""

    reuse: bool  # else the step is computed
    reason: Reason
    accumulated: float = 0.0  # proxy distance since the last full step, infinite if unknown; 0 if no proxy is read
    expected_error: float | None = None  # relative, of the prediction at this step; None if unknown

    def __post_init__(self) -> None:
        if not isinstance(self.reason, Reason):
            raise refusal("reason", self.reason, "a Reason", "return for example Decision(True, Reason.CUSTOM)")


class Policy(Protocol):
    """The methods and attributes of a policy that the engine uses.

    `reads_proxy` says whether decisions need the proxy's distance, `reuses` whether any step can be reused (else the
    engine stores nothing), and `learns_errors` whether `Observation.error` is used, which full steps must then measure.
    `decide` also returns a state: any value, which it receives at the next step, and None at the first. A policy must
    compute a step whose `Observation.forced` is not None. For example, a policy of your own that computes every third
    step, for `GalaxyDiTConfig(policy=EveryThird())`:

        class EveryThird:
            reads_proxy, reuses, learns_errors = False, True, False

            def decide(self, observation, state=None):
                reuse = observation.forced is None and observation.step % 3 > 0
                return Decision(reuse, observation.forced or Reason.CUSTOM), state
    """

    @property
    def reads_proxy(self) -> bool: ...
    @property
    def reuses(self) -> bool: ...
    @property
    def learns_errors(self) -> bool: ...
    def decide(self, observation: Observation, state: Any | None = None) -> tuple[Decision, Any]: ...


class Controller:
    """The decisions of one scope (one branch, or all branches jointly) for one sample in one generation."""

    def __init__(self, policy: Policy, limits: Limits) -> None:
        self._policy = policy
        self._limits = limits
        self._state: Any = None
        self._consecutive = 0

    def decide(self, observation: Observation) -> Decision:
        """Add limits and the number of steps reused in a row to an observation, and let the policy decide.

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
