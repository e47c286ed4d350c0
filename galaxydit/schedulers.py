"""What the plugin knows of schedulers: one table by class name, and the noise levels of a scheduler's steps."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Any

from diffusers.hooks.hooks import CacheContext
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

ROUNDING = 1e-5  # of noise levels in float32
_READ = WeakTensorKeyDictionary()


class Noise(Enum):
    """Whether a scheduler draws noise in every step; POSSIBLE if only `eta` or `s_churn` of its step says so,
    UNKNOWN without a scheduler."""

    NONE, POSSIBLE, DRAWN, UNKNOWN = range(4)


@dataclass(frozen=True)
class SchedulerKind:
    """A row of the table: what holds for schedulers whose class name contains `part`.

    Attributes:
        is_flow: x = (1 - sigma) clean + sigma noise, and the model predicts noise - clean.
        draws_noise: in every step, whatever the configuration.
        ignores_churn: `s_churn` of its step adds so little noise that velocities are still reused best.
    """

    part: str
    is_flow: bool = False
    draws_noise: bool = False
    ignores_churn: bool = False


_STOCHASTIC = (
    "Ancestral",
    "CMStochastic",
    "CogVideoXDPM",
    "CosineDPM",
    "DDPM",
    "HeliosDMD",
    "LCM",
    "RePaint",
    "SASolver",
    "SCM",
    "SDE",
    "ScoreSdeVe",
    "TCD",
    "UnCLIP",
)
TABLE: tuple[SchedulerKind, ...] = (
    SchedulerKind("FlowMatch", is_flow=True, ignores_churn=True),
    SchedulerKind("FlowMap", is_flow=True),
    SchedulerKind("RFScheduler", is_flow=True),
    *(SchedulerKind(part, draws_noise=True) for part in _STOCHASTIC),
)
"""A class may be in several rows; what any of them says holds. Configurations add to it (`kind_of`)."""


def kind_of(scheduler: Any) -> SchedulerKind:
    """The rows of a scheduler's class, joined, and what its configuration adds."""
    name = type(scheduler).__name__
    config = getattr(scheduler, "config", None)
    is_flow = bool(getattr(config, "use_flow_sigmas", False))
    draws_noise = bool(getattr(config, "stochastic_sampling", False))
    if str(getattr(config, "algorithm_type", "")).startswith("sde"):
        draws_noise = True
    ignores_churn = False
    for row in TABLE:
        if row.part in name:
            is_flow = is_flow or row.is_flow
            draws_noise = draws_noise or row.draws_noise
            ignores_churn = ignores_churn or row.ignores_churn
    return SchedulerKind(name, is_flow, draws_noise, ignores_churn)


def noise_of(scheduler: Any | None) -> Noise:
    """Whether the scheduler draws noise in every step, so that an output belongs to the noise of its step."""
    if scheduler is None:
        return Noise.UNKNOWN
    kind = kind_of(scheduler)
    if kind.draws_noise:
        return Noise.DRAWN
    step = getattr(scheduler, "step", None)
    if step is None:
        return Noise.NONE
    arguments = inspect.signature(step).parameters
    if "eta" in arguments or ("s_churn" in arguments and not kind.ignores_churn):
        return Noise.POSSIBLE
    return Noise.NONE


def asks_for_noise(arguments: Mapping[str, Any]) -> bool:
    """Whether the arguments of a `step` make a scheduler draw noise that draws none by default."""
    for name in ("eta", "s_churn"):
        value = arguments.get(name)
        if isinstance(value, int | float) and value > 0:
            return True
    return False


def draws_noise(scheduler: Any | None) -> bool:
    """Whether the scheduler is stochastic, so that earlier outputs no longer add up linearly; False for None."""
    return noise_of(scheduler) is Noise.DRAWN


def prediction_type(scheduler: Any | None) -> str | None:
    """What the model predicts for the scheduler; None where it is unknown."""
    config = getattr(scheduler, "config", None)
    kind = getattr(config, "prediction_type", None)
    if getattr(config, "algorithm_type", None) == "sde-dpmsolver":
        return None  # its second order, unlike that of DPM-Solver++, multiplies errors where little noise is left
    known: tuple[str, ...] = ("epsilon", "v_prediction", "sample")
    if scheduler is not None and kind_of(scheduler).is_flow:
        known = ("flow_prediction",)
        kind = "flow_prediction" if kind is None else kind
    return kind if kind in known else None


# Where a scheduler is, and its noise levels


def counter_of(scheduler: Any | None) -> int | None:
    """How many steps the scheduler has taken, by its own counter; None before the first, and without a counter."""
    for name in ("step_index", "counter"):  # PNDM's is called so
        counter = getattr(scheduler, name, None)
        if counter is not None:
            return int(counter)
    return None


def values_of(tensor: Tensor) -> list[float]:
    """The values of a tensor, read only once if it does not change, because reading from a GPU waits for its queue."""
    version = None if tensor.is_inference() else tensor._version
    if _READ.get(tensor, (-1,))[0] != version:
        _READ[tensor] = version, tensor.tolist()
    return _READ[tensor][1]


def sigmas_in(scheduler: Any | None) -> list[float] | None:
    """A scheduler's sigmas; None if it has none."""
    sigmas = getattr(scheduler, "sigmas", None)
    if sigmas is None:
        return None
    if isinstance(sigmas, Tensor):
        return values_of(sigmas)
    return [float(sigma) for sigma in sigmas]


def noise_level(sigma: float, sigmas: Sequence[float]) -> float:
    """Weight of the noise in [0, 1] for one of a scheduler's `sigmas`; the weight falls from step to step. Flow
    schedulers' sigmas are these weights; Mochi's rise, and are 1 minus the weight. Variance-exploding ones, such as
    Cosmos', have x = clean + sigma noise; as a linear mix, the weight is sigma / (1 + sigma).
    """
    if sigmas[0] < sigmas[-1]:
        return 1 - sigma
    if sigmas[0] > 1 + ROUNDING:
        return sigma / (1 + sigma)
    return sigma


def sigmas_of(scheduler: Any | None, steps: int) -> tuple[float, ...] | None:
    """Noise level of every step; None if the scheduler gives too few sigmas, or levels that rise or leave [0, 1]."""
    sigmas = sigmas_in(scheduler)
    if sigmas is None or len(sigmas) < steps:
        return None
    levels = []
    for sigma in sigmas[:steps]:
        level = noise_level(sigma, sigmas)
        if 1 < level < 1 + ROUNDING:
            level = 1.0  # flow shifts round the first level to a little more than 1
        levels.append(level)
    falls = all(after <= before for before, after in pairwise(levels))
    if falls and levels[-1] >= 0 and levels[0] <= 1:
        return tuple(levels)
    return None


def sigma_at(context: CacheContext | None, scheduler: Any | None, step: int, timestep: Any) -> float:
    """Noise level of a step in [0, 1]: the cache context's, else the scheduler's, else timestep / 1000."""
    sigmas = sigmas_in(scheduler)
    sigma = None
    if context is not None:
        sigma = context.sigma
    if sigma is None and sigmas is not None and step < len(sigmas):
        sigma = sigmas[step]
    if sigma is not None:
        if sigmas is None:
            return float(sigma)
        return noise_level(sigma, sigmas)
    timesteps = getattr(scheduler, "timesteps", None)
    if isinstance(timesteps, Tensor) and step < len(timesteps):
        return values_of(timesteps)[step] / 1000
    if isinstance(timestep, Tensor):
        timestep = timestep.max()  # given tokens, such as a first frame, have a smaller one than the denoised ones
    return float(timestep) / 1000
