"""The configuration: which tensor is reused, which proxy is read, the limits, and one policy.

A full step computes the transformer. A reused step instead predicts the transformer's output, or what its block stack
adds to its input, from earlier full steps. A proxy is a tensor in or before the first block; its change from step to
step costs little to measure, and shows how much the output is about to change.
"""

from dataclasses import dataclass, field

from galaxydit.errors import check_choice, check_number, refusal
from galaxydit.extrapolation import DAMPING, LARGEST_AHEAD
from galaxydit.policies.policy import Limits, Policy
from galaxydit.policies.threshold import Threshold
from galaxydit.proxies import PROXIES


@dataclass(frozen=True)
class GalaxyDiTConfig:
    """Settings of the plugin: the policy that chooses full steps, its limits, and the reused tensors.

    Attributes:
        policy: chooses the full steps: `Threshold`, `FixedSteps` (ignores the limits), `Online`, `Schedule`,
            `ProxyThreshold`, or any object with the interface `galaxydit.policies.policy.Policy`.
        proxy: name of the tensor whose change is measured, one of `galaxydit.PROXIES`.
        warmup: share of the steps, at the start, that are always computed, in [0, 1], rounded up to at least one step
            (0.2: arXiv 2512.03451).
        keep_last: number of last steps that are always computed, at least 0.
        max_consecutive: cap on reused steps in a row, at least 1, or None; ignored by `Schedule`, alone or in `Online`.
        reuse: "output" predicts the transformer's output, so a reused step runs no more than the first block of one
            branch; "residual" predicts what the block stack adds to its input and runs embedding and output head.
        order: 0 repeats the last full step; 1 extrapolates linearly in sigma from the last two full steps.
        slope: share of the slope between the last two full steps that order 1 follows, in [0, 1].
        largest_ahead: largest factor with which order 1 adds the difference between the last two full steps to the last
            one, in [0, 10]; at 1 the prediction moves no further than the output did between these two steps.
        correction: whether a full step after reused steps adds a correction for their error, estimated from the error
            that reuse would have had at this full step (`galaxydit.extrapolation.correction`). Each transformer and
            branch is corrected by itself. A correction needs a known scheduler that does not draw noise.
        correction_share: share of the estimated error that is corrected, in [0, 1]; None takes the default of the order
            (`galaxydit.extrapolation.CORRECTED`).
        guidance_alignment: True decides each step once for all guidance branches. False decides each branch separately
            and is meant for comparison.
        per_sample: True decides for each sample of a batch as if it were alone, if the policy reads the proxy, and
            computes only the samples that need a full step. False lets the sample whose proxy moved most decide for
            all; the batch size of calls then never changes, so torch.compile does not compile again.

    Raises GalaxyDiTError for a value that is not allowed.
    """

    policy: Policy = field(default_factory=Threshold)
    proxy: str = "block_residual"
    warmup: float = 0.2
    keep_last: int = 1
    max_consecutive: int | None = 4
    reuse: str = "output"
    order: int = 1
    slope: float = DAMPING
    largest_ahead: float = LARGEST_AHEAD
    correction: bool = True
    correction_share: float | None = None
    guidance_alignment: bool = True
    per_sample: bool = True

    def __post_init__(self) -> None:
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
        check_choice("proxy", self.proxy, tuple(PROXIES))
        check_choice("reuse", self.reuse, ("output", "residual"))
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
        """`warmup`, `keep_last` and `max_consecutive` in one object, for the policy."""
        return Limits(self.warmup, self.keep_last, self.max_consecutive)

    @property
    def history_length(self) -> int:
        """Number of full steps that a prediction needs; 0 if nothing is ever reused."""
        return self.order + 1 if self.policy.reuses else 0
