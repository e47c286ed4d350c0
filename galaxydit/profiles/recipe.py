"""The recipe of a profile: the settings that the plugin follows if the profile is used.

A measured profile comes from a calibration; a published profile was planned from published measurements.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le, MinLen

from galaxydit.errors import GalaxyDiTError, check_ascending, check_choice
from galaxydit.extrapolation import DAMPING, LARGEST_AHEAD
from galaxydit.policies.error_map import CumulativeDistance, ErrorMap
from galaxydit.profiles.evidence import Share
from galaxydit.proxies import PROXIES


@dataclass(frozen=True)
class Target:
    """The settings of a recipe for one speedup.

    Attributes:
        speedup: block evaluations without the plugin / with it.
        warmup: share of first steps that are always computed.
        max_consecutive: largest number of steps reused in a row; None for no limit.
        sigmas: noise levels of the planned full steps, falling.
        threshold: threshold of the policy "proxy" (`galaxydit.policies.proxy_threshold.ProxyThreshold`), solved on the
            calibration's recordings; None in a published profile.
        policy: the policy that did better on held-out prompts, which `policy="auto"` follows.
    """

    speedup: Annotated[float, Ge(1), Le(100)]
    warmup: Share
    max_consecutive: Annotated[int, Ge(1), Le(10_000)] | None
    sigmas: Annotated[tuple[float, ...], MinLen(2)]
    threshold: Annotated[float, Gt(0)] | None = None
    policy: Literal["schedule", "proxy"] = "schedule"

    def __post_init__(self) -> None:
        check_ascending("sigmas", tuple(reversed(self.sigmas)), strictly=True)


@dataclass(frozen=True)
class Recipe:
    """The settings that a profile prescribes: what is predicted and how, and the full steps for each speedup.

    Attributes:
        proxy: name of the cheap tensor whose change is measured, one of `galaxydit.PROXIES`.
        reuse: "output" predicts the transformer's output, "residual" what its block stack adds to its input.
        order: 0 repeats the last full step, 1 extrapolates the last two.
        error_map: expected relative error of a reused step, after guidance, by proxy distance since the last full step
            and sigma; None in a published profile.
        cumulative_distance: proxy distance summed over the steps from the first step to each sigma, mean over the
            samples of the calibration; None in a published profile.
        targets: settings for each planned speedup, in rising order.
        proxy_share: share of the block evaluations of a full step that a reused step runs to read the proxy.
        deviation_weight: share of a sample's deviation from `cumulative_distance` that the policy "proxy" counts.
        slope: share of the slope between the last two full steps that order 1 follows.
        largest_ahead: largest factor with which order 1 adds the difference between the last two full steps.
        correction_share: share of the estimated error of reused steps that the next full step corrects; None takes the
            default of the order (`galaxydit.extrapolation.CORRECTED`).
    """

    proxy: str
    reuse: Literal["output", "residual"]
    order: Literal[0, 1]
    error_map: ErrorMap | None
    cumulative_distance: CumulativeDistance | None
    targets: tuple[Target, ...]
    proxy_share: Share = 0.0
    deviation_weight: Share = 1.0
    slope: Share = DAMPING
    largest_ahead: Annotated[float, Ge(0), Le(LARGEST_AHEAD)] = LARGEST_AHEAD
    correction_share: Share | None = None

    def __post_init__(self) -> None:
        check_choice("proxy", self.proxy, tuple(PROXIES))
        if not self.targets:
            raise GalaxyDiTError("targets is empty: expected at least one; calibrate again")
        check_ascending("targets' speedup", tuple(target.speedup for target in self.targets), strictly=True)
