"""The configuration: what is reused, which proxy is read, the limits, and one policy."""

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
        policy: decides step by step: `Threshold`, `FixedSteps`, `Online` or `Schedule`.
        proxy: name of the tensor whose change is measured, one of `galaxydit.PROXIES`.
        warmup: share of the steps, from the first, that are always computed, in [0, 1] (0.2: arXiv 2512.03451).
        keep_last: number of steps, from the last, that are always computed, at least 0.
        max_consecutive: most reused steps in a row, at least 1, or None for no cap; a `Schedule` has gaps of its own.
        reuse: "output" predicts the transformer's output, so a reused step runs no more than the first block of one
            branch; "residual" predicts what the block stack adds to its input and runs embedding and output head.
        order: 0 repeats the last full step; 1 follows the slope of the last two in sigma.
        slope: share of that slope that order 1 follows, in [0, 1].
        largest_ahead: most times that order 1 adds the difference between the last two full steps, in [0, 10]; at 1 it
            extrapolates no further than these steps lie apart.
        correction: whether the full step after reused ones, of the same transformer and branch, makes up for what they
            missed, as the error of its own prediction shows it (`galaxydit.extrapolation.correction`). It needs a known
            scheduler that does not draw noise.
        correction_share: share of the estimated error that is made up for, in [0, 1]; None takes the order's own
            (`galaxydit.extrapolation.CORRECTED`).
        guidance_alignment: one decision a step for all guidance branches. False decides each branch separately and is
            meant for comparison.
        per_sample: one decision for each sample of a batch, as if it were alone, where the policy reads the proxy: the
            samples that need a step are gathered and computed. False lets the hardest sample decide for all, so that
            the batch size of calls never changes, for which torch.compile would compile again.

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
        asked = ("decide", "reads_proxy", "history_length", "learns_errors")
        if isinstance(self.policy, type) or not all(hasattr(self.policy, name) for name in asked):
            cure = f"pass for example policy=Threshold(0.1); one of your own has {', '.join(asked)}"
            raise refusal("policy", self.policy, "a policy", cure)
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
        """The limits that policies respect."""
        return Limits(self.warmup, self.keep_last, self.max_consecutive)

    @property
    def history_length(self) -> int:
        """Computed steps that predictions need; 0 if nothing is ever reused."""
        return self.policy.history_length and self.order + 1
