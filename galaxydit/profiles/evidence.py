"""The evidence of a profile: how its recipe (the settings) was chosen, and which quality was measured, for people.

Held-out prompts are prompts of the calibration that its choices did not use. A reused step is predicted from earlier
full (computed) steps, and the error of reuse is the relative error of this prediction. A proxy is a cheap tensor whose
change from step to step, its distance, shows how much the output changes. The error map gives the expected error of
reuse by proxy distance and sigma, the noise level. The policy "schedule" computes planned steps; the policy "proxy"
computes a step when the proxy has moved enough since the last full step.
"""

import math
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Annotated

from annotated_types import Ge, Gt, Le

from galaxydit.errors import check_ascending, check_choice, refusal
from galaxydit.proxies import PROXIES

Positive = Annotated[float, Ge(0)]
Share = Annotated[float, Ge(0), Le(1)]
Correlation = Annotated[float, Ge(-1), Le(1)]
Count = Annotated[int, Ge(0), Le(2**64)]


@dataclass(frozen=True)
class RankedProxy:
    """Rank correlations of a proxy's distance with the error of reuse (`galaxydit.calibration.rank`).

    Attributes:
        proxy: name of the proxy.
        cost: measured seconds of reading the proxy / seconds of a full step.
        rho, low, high: mean Spearman correlation over the steps of a generation, with its 95 % interval over prompts.
        between, between_low, between_high: rank correlation over samples at the same step, with its 95 % interval. It
            is 0 for a proxy that follows the step number alone.
        paper: `rho` for reused steps that repeat the last full step (order 0), after the first 20 % of the steps, as in
            arXiv 2512.03451.
    """

    proxy: str
    cost: Positive
    rho: Correlation
    low: Correlation
    high: Correlation
    between: Correlation
    between_low: Correlation
    between_high: Correlation
    paper: Correlation

    def __post_init__(self) -> None:
        check_choice("proxy", self.proxy, tuple(PROXIES))


@dataclass(frozen=True)
class Fit:
    """Quality of a fitted error map on samples left out of the fit, by twofold cross-validation.

    Attributes:
        r2_one_curve: share of the variance of the error that one curve for all sigmas explains; negative where the mean
            explains more.
        r2_by_sigma: the same for one curve for each range of sigmas.
        spearman: rank correlation of the error that the curves by sigma expect with the measured error.
    """

    r2_one_curve: float
    r2_by_sigma: float
    spearman: float


@dataclass(frozen=True)
class ErrorPropagation:
    """Growth or decay of errors of the latent until the end of a generation.

    Attributes:
        sigmas: noise levels at which it was measured, falling; empty if it was not measured.
        sensitivities: error of the final latent / error made at that noise level, above 0.
    """

    sigmas: tuple[float, ...] = ()
    sensitivities: tuple[Annotated[float, Gt(0)], ...] = ()

    def __post_init__(self) -> None:
        check_ascending("propagation's sigmas", tuple(reversed(self.sigmas)), strictly=True)
        count = len(self.sigmas)
        if count != len(self.sensitivities) or not all(0 < value < math.inf for value in self.sensitivities):
            expected = f"a number above 0 for each of its {count} sigmas"
            raise refusal("propagation's sensitivities", self.sensitivities, expected, "calibrate again")

    def sensitivity(self, sigma: float) -> float:
        """The sensitivity at a noise level, from log-linear interpolation and extrapolation of the measured
        sensitivities; 1 if none was measured.
        """
        if len(self.sigmas) < 2:
            return self.sensitivities[0] if self.sensitivities else 1.0
        right = min(max(1, bisect_left(self.sigmas, -sigma, key=lambda value: -value)), len(self.sigmas) - 1)
        high, low = self.sigmas[right - 1], self.sigmas[right]
        share = (high - sigma) / (high - low)
        left_log, right_log = (math.log(self.sensitivities[index]) for index in (right - 1, right))
        return math.exp((1 - share) * left_log + share * right_log)


@dataclass(frozen=True)
class Verification:
    """Measurements of one policy at one requested speedup, on held-out prompts; in a `ComparedProxy`, on the prompts by
    which the proxy was chosen.

    Attributes:
        speedup: the requested speedup.
        expected_error: largest relative error that the profile's error map (`Recipe.error_map`) expects of a reused
            step; None for the policy "proxy".
        compute_fraction: block evaluations done / block evaluations without the plugin; None if nothing was measured.
        psnr_db, psnr_low, psnr_high: PSNR in dB against the video without the plugin, mean over prompts with its 95 %
            interval; None if nothing was measured; the interval is None also for a single prompt.
        prompts: number of prompts; 0 if nothing was measured.
    """

    speedup: float
    expected_error: Positive | None = None
    compute_fraction: Share | None = None
    psnr_db: Positive | None = None
    psnr_low: Positive | None = None
    psnr_high: Positive | None = None
    prompts: Count = 0


@dataclass(frozen=True)
class ComparedProxy:
    """A proxy that a calibration compared with others: PSNRs of videos whose full steps it chose (policy "proxy").

    `measured` has one entry for each compared speedup: the mean PSNR and compute fraction over a few prompts that are
    not held out.
    """

    proxy: str
    measured: tuple[Verification, ...]


@dataclass(frozen=True)
class Seconds:
    """Seconds on the calibration's device, and the speedups of denoising that they predict.

    Attributes:
        step: seconds of a full step.
        block: seconds of one block in one transformer call.
        outside_blocks: seconds of a step in the transformer but not in its blocks.
        outside_transformer: seconds of a step outside the transformer.
        predicted_speedup, measured_speedup: one number for each requested speedup, in the order of
            `Evidence.verifications`: seconds of denoising without the plugin / with it, policy "schedule", predicted
            from the four seconds above and measured on held-out prompts (median). `measured_speedup` is empty without
            held-out prompts.
        disturbance: why `measured_speedup` must not be trusted, because other work disturbed it; empty if nothing shows
            that.
    """

    step: Positive
    block: Positive
    outside_blocks: Positive
    outside_transformer: Positive
    predicted_speedup: tuple[Positive, ...]
    measured_speedup: tuple[Positive, ...]
    disturbance: str = ""


@dataclass(frozen=True)
class Evidence:
    """Why the recipe was chosen, and its measured quality. The runtime reads `reason`, `ranking` and verifications.

    `seconds` differ between two runs of the same calibration, so comparisons and `Profile.identity` leave them out.

    Attributes:
        reason: why the proxy was chosen, in words; for a published profile, published PSNRs of similar step lists.
        ranking: rank correlations of each proxy's distance with the error of reuse, best proxy first; empty in a
            published profile.
        fit: quality of the recipe's error map (R² and rank correlation); None in a published profile.
        propagation: growth of errors until the end of a generation.
        verifications, proxy_verifications: measurements of the policies "schedule" and "proxy", one for each requested
            speedup that could be planned, rising; empty in a published profile. Without held-out prompts,
            `verifications` have expected errors alone, and `proxy_verifications` is empty.
        compared_proxies: the proxies whose generated videos were compared to choose one, the chosen proxy first; empty
            in a published profile.
        seconds: seconds of a full step and its parts on the calibration's device, and the speedups that these predict
            and that the calibration measured; None in a published profile.
    """

    reason: str
    ranking: tuple[RankedProxy, ...] = ()
    fit: Fit | None = None
    propagation: ErrorPropagation = ErrorPropagation()
    verifications: tuple[Verification, ...] = ()
    proxy_verifications: tuple[Verification, ...] = ()
    compared_proxies: tuple[ComparedProxy, ...] = ()
    seconds: Seconds | None = field(default=None, compare=False)
