"""The configuration: which tensor is reused, which proxy is read, the limits, and one policy."""

from dataclasses import dataclass, field
from typing import get_args

from galaxydit.errors import check_choice, check_count, check_number, plain_fields, proposing_fields, refusal
from galaxydit.extrapolation import DAMPING, LARGEST_AHEAD, Reuse, ReuseName
from galaxydit.policies.general_schedule import GeneralSchedule
from galaxydit.policies.policy import FEW_STEPS, GENERAL_FEW_STEPS, Limits, Policy
from galaxydit.policies.threshold import Threshold
from galaxydit.proxies import PROXIES, Proxy, ProxyName, check_proxy


@proposing_fields
@dataclass(frozen=True)
class GalaxyDiTConfig:
    """Settings of the plugin: the policy that chooses full steps, its limits, and the reused tensors.

    Attributes:
        policy: chooses the full steps: `Threshold`, `FixedSteps` (ignores the limits), `Online`, `Schedule`,
            `ProxyThreshold`, or any `galaxydit.policies.policy.Policy`.
        proxy: the name of one of `galaxydit.PROXIES`, or a `galaxydit.Proxy` of one's own.
        warmup: share of first steps that are always computed, in [0, 1], at least one step (0.2: arXiv 2512.03451).
        keep_last: number of last steps that are always computed, at least 0.
        max_consecutive: cap on reused steps in a row, at least 1, or None; ignored by `Schedule`.
        reuse: "output" predicts the transformer's output; "residual" what the block stack adds to its input; a
            `galaxydit.Reuse` predicts either in its own way.
        order: 0 repeats the last full step; 1 extrapolates linearly in sigma from the last two.
        slope: share of their slope that order 1 follows, in [0, 1].
        largest_ahead: largest factor of their difference in a prediction, in [0, 10].
        correction: whether full steps correct errors of reuse (`galaxydit.extrapolation.correction`); needs a known
            scheduler that draws no noise.
        correction_share: share of the estimated error that is corrected, in [0, 1]; None takes `CORRECTED[order]`.
        guidance_alignment: one decision for all guidance branches; False, for comparison, decides each by itself.
        per_sample: each sample of a batch decides alone if a proxy is read; False keeps the batch size of all calls, so
            torch.compile does not compile again.
        few_steps: generations of this many steps or fewer are computed in full, at least 0; None takes
            `GENERAL_FEW_STEPS` where the general schedule plans full steps, else `FEW_STEPS`.

    Raises GalaxyDiTError for a value that is not allowed.
    """

    policy: Policy = field(default_factory=Threshold)
    proxy: ProxyName | Proxy = "block_residual"
    warmup: float = 0.2
    keep_last: int = 1
    max_consecutive: int | None = 4
    reuse: ReuseName | Reuse = "output"
    order: int = 1
    slope: float = DAMPING
    largest_ahead: float = LARGEST_AHEAD
    correction: bool = True
    correction_share: float | None = None
    guidance_alignment: bool = True
    per_sample: bool = True
    few_steps: int | None = None

    def __post_init__(self) -> None:
        plain_fields(self)
        asked = ("decide", "reads_proxy", "reuses", "learns_errors")
        missing = [name for name in asked if not hasattr(self.policy, name)]
        if isinstance(self.policy, type) or missing:
            hint = ""
            if isinstance(self.policy, str):
                hint = f", or the name to accelerate(policy={self.policy!r})"
            elif isinstance(self.policy, type):
                hint = ", an instance"
            elif hasattr(self.policy, "decide"):
                hint = f"; this policy lacks {', '.join(missing)}"
            raise refusal("policy", self.policy, "a policy", f"pass for example policy=Threshold(0.1){hint}")
        if not isinstance(self.proxy, Proxy):
            check_proxy(self.proxy)
        if not isinstance(self.reuse, Reuse):
            check_choice("reuse", self.reuse, get_args(ReuseName))
        if self.few_steps is not None:
            check_count("few_steps", self.few_steps, minimum=0)
        check_choice("order", self.order, (0, 1))
        check_number("slope", self.slope, 0.0, 1.0)
        check_number("largest_ahead", self.largest_ahead, 0.0, LARGEST_AHEAD)
        check_choice("correction", self.correction, (True, False))
        if self.correction_share is not None:
            check_number("correction_share", self.correction_share, 0.0, 1.0)
        check_choice("guidance_alignment", self.guidance_alignment, (True, False))
        check_choice("per_sample", self.per_sample, (True, False))
        Limits(self.warmup, self.keep_last, self.max_consecutive)  # raises for a value that is not allowed

    @property
    def limits(self) -> Limits:
        return Limits(self.warmup, self.keep_last, self.max_consecutive)

    @property
    def follows_general_schedule(self) -> bool:
        """Whether the general schedule plans the full steps, alone or beside a proxy or `max_error`."""
        return isinstance(getattr(self.policy, "schedule", self.policy), GeneralSchedule)

    @property
    def most_in_full(self) -> int:
        """Generations of this many steps or fewer are computed in full."""
        if self.few_steps is not None:
            return self.few_steps
        return GENERAL_FEW_STEPS if self.follows_general_schedule else FEW_STEPS

    @property
    def watched(self) -> Proxy:
        """The proxy that the policy reads."""
        return self.proxy if isinstance(self.proxy, Proxy) else PROXIES[self.proxy]

    @property
    def predicts(self) -> ReuseName:
        """What a reused step predicts, "output" or "residual"."""
        return self.reuse.predicts if isinstance(self.reuse, Reuse) else self.reuse

    @property
    def history_length(self) -> int:
        """Full steps that a prediction needs; 0 if nothing is ever reused."""
        return self.order + 1 if self.policy.reuses else 0
