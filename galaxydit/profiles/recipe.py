"""The recipe of a profile: the settings that the plugin follows."""

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le, MinLen

from galaxydit.errors import GalaxyDiTError, check_ascending
from galaxydit.extrapolation import DAMPING, LARGEST_AHEAD, ReuseName
from galaxydit.policies.error_map import CumulativeDistance, ErrorMap
from galaxydit.profiles.evidence import Share
from galaxydit.proxies import check_proxy


@dataclass(frozen=True)
class Target:
    speedup: Annotated[float, Ge(1), Le(100)]  # block evaluations without the plugin / with it
    warmup: Share
    max_consecutive: Annotated[int, Ge(1), Le(10_000)] | None  # reused steps in a row; None for no limit
    sigmas: Annotated[tuple[float, ...], MinLen(2)]  # of the planned full steps, falling
    # of the policy "proxy"; None until it is solved on recordings
    threshold: Annotated[float, Gt(0)] | None = None
    policy: Literal["schedule", "proxy"] = "schedule"  # the better one on held-out prompts, for `policy="auto"`

    def __post_init__(self) -> None:
        check_ascending("sigmas", tuple(reversed(self.sigmas)), strictly=True)


@dataclass(frozen=True)
class Recipe:
    """The settings that a profile prescribes: what is predicted and how, and the full steps for each speedup.

    `GalaxyDiTConfig` explains the settings of prediction and correction.
    """

    proxy: str
    reuse: ReuseName
    order: Literal[0, 1]
    error_map: ErrorMap
    cumulative_distance: CumulativeDistance  # mean over the calibration's samples
    targets: tuple[Target, ...]  # by rising speedup
    proxy_share: Share = 0.0  # of the block evaluations of a full step, run in a reused step to read the proxy
    deviation_weight: Share = 1.0  # of a sample from `cumulative_distance`, for the policy "proxy"
    slope: Share = DAMPING
    largest_ahead: Annotated[float, Ge(0), Le(LARGEST_AHEAD)] = LARGEST_AHEAD
    correction_share: Share | None = None

    def __post_init__(self) -> None:
        check_proxy(self.proxy)
        if not self.targets:
            raise GalaxyDiTError("targets is empty: expected at least one; calibrate again")
        check_ascending("targets' speedup", tuple(target.speedup for target in self.targets), strictly=True)
