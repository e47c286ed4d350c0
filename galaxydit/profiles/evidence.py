"""The evidence of a profile, for people: how its recipe was chosen, and which quality was measured."""

import math
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Annotated

from annotated_types import Ge, Gt, Le

from galaxydit.errors import check_ascending, refusal
from galaxydit.proxies import check_proxy

Positive = Annotated[float, Ge(0)]
Share = Annotated[float, Ge(0), Le(1)]
Correlation = Annotated[float, Ge(-1), Le(1)]
Count = Annotated[int, Ge(0), Le(2**64)]


@dataclass(frozen=True)
class RankedProxy:
    """Rank correlations of a proxy's distance with the error of reuse (`calibration.rank`), with 95 % intervals."""

    proxy: str
    cost: Positive  # of reading the proxy / of a full step: blocks, or seconds where they were measured
    rho: Correlation  # mean Spearman correlation over the steps of a generation
    low: Correlation
    high: Correlation
    between: Correlation  # over samples at the same step; 0 for a proxy that follows the step number alone
    between_low: Correlation
    between_high: Correlation
    paper: Correlation  # `rho` at order 0 after the first 20 % of the steps, as in arXiv 2512.03451

    def __post_init__(self) -> None:
        check_proxy(self.proxy)


@dataclass(frozen=True)
class Fit:
    """Quality of a fitted error map, by twofold cross-validation."""

    r2_one_curve: float  # of one curve for all sigmas; negative where the mean explains more
    r2_by_sigma: float  # of one curve for each range of sigmas
    spearman: float  # rank correlation of expected with measured errors


@dataclass(frozen=True)
class ErrorPropagation:
    """Error of the final latent / error made at each noise level; empty if it was not measured."""

    sigmas: tuple[float, ...] = ()  # falling
    sensitivities: tuple[Annotated[float, Gt(0)], ...] = ()

    def __post_init__(self) -> None:
        check_ascending("propagation's sigmas", tuple(reversed(self.sigmas)), strictly=True)
        count = len(self.sigmas)
        if count != len(self.sensitivities) or not all(0 < value < math.inf for value in self.sensitivities):
            expected = f"a number above 0 for each of its {count} sigmas"
            raise refusal("propagation's sensitivities", self.sensitivities, expected, "calibrate again")

    def sensitivity(self, sigma: float) -> float:
        """Log-linear interpolation at a noise level; 1 without measurements."""
        if len(self.sigmas) < 2:
            return self.sensitivities[0] if self.sensitivities else 1.0
        right = min(max(1, bisect_left(self.sigmas, -sigma, key=lambda value: -value)), len(self.sigmas) - 1)
        high, low = self.sigmas[right - 1], self.sigmas[right]
        share = (high - sigma) / (high - low)
        left_log, right_log = (math.log(self.sensitivities[index]) for index in (right - 1, right))
        return math.exp((1 - share) * left_log + share * right_log)


@dataclass(frozen=True)
class Verification:
    """One policy at one requested speedup, on held-out prompts; values are None where nothing was measured."""

    speedup: float
    expected_error: Positive | None = None  # largest of a reused step, by the error map; None for "proxy"
    compute_fraction: Share | None = None
    psnr_db: Positive | None = None  # against the plain video, mean over prompts
    psnr_low: Positive | None = None  # 95 % interval; None for a single prompt
    psnr_high: Positive | None = None
    prompts: Count = 0


@dataclass(frozen=True)
class ComparedProxy:
    """The policy "proxy" with this proxy at each compared speedup, on prompts that are not held out."""

    proxy: str
    measured: tuple[Verification, ...]


@dataclass(frozen=True)
class Seconds:
    """Seconds on the calibration's device, and speedups of denoising for each of `Evidence.verifications`."""

    step: Positive
    block: Positive  # one block in one transformer call
    outside_blocks: Positive  # of a step, in the transformer
    outside_transformer: Positive  # of a step
    predicted_speedup: tuple[Positive, ...]
    measured_speedup: tuple[Positive, ...]  # median; empty without held-out prompts
    disturbance: str = ""  # why `measured_speedup` must not be trusted, or empty


@dataclass(frozen=True)
class Recorded:
    """What the recordings of a calibration were."""

    latent_shape: tuple[int, ...]  # may be smaller than that of the videos, `Conditions.latent_shape`
    dtype: str  # of the computation, such as "float32"
    # error of schedules from a small recording over that of the best, on one video of full size; None if not checked
    excess_db: Positive | None = None


@dataclass(frozen=True)
class Evidence:
    """Why the recipe was chosen, and its measured quality.

    `seconds` differ between two runs of one calibration, so comparisons and `Profile.identity` leave them out.
    """

    reason: str
    ranking: tuple[RankedProxy, ...] = ()  # best proxy first
    fit: Fit | None = None  # of the recipe's error map
    propagation: ErrorPropagation = ErrorPropagation()
    # policy "schedule", by rising speedup; expected errors alone without held-out prompts
    verifications: tuple[Verification, ...] = ()
    proxy_verifications: tuple[Verification, ...] = ()  # policy "proxy"
    compared_proxies: tuple[ComparedProxy, ...] = ()  # the chosen proxy first
    seconds: Seconds | None = field(default=None, compare=False)
    recorded: Recorded | None = None

    @property
    def verified_prompts(self) -> int:
        """Held-out prompts by which videos verified the profile."""
        return max((row.prompts for row in self.verifications), default=0)
