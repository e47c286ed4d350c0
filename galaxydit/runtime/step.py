"""The step and noise level of a call, from the call (`transformer.cache_context(...)`), never from a count of calls."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Any

import torch
from diffusers.hooks.hooks import CacheContext
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

ROUNDING = 1e-5  # of noise levels in float32
STOCHASTIC: tuple[str, ...] = ("Ancestral", "CMStochastic", "CogVideoXDPM", "CosineDPM", "DDPM", "HeliosDMD", "LCM")
STOCHASTIC += ("RePaint", "SASolver", "SCM", "SDE", "ScoreSdeVe", "TCD", "UnCLIP")
"""Parts of the names of diffusers' schedulers that draw noise in every step, whatever their configuration."""
_READ = WeakTensorKeyDictionary()


@dataclass(frozen=True)
class StepInfo:
    """A step: its index from 0, the number of steps, and its noise level in [0, 1] (`noise_level`). Without the
    scheduler's sigmas, `sigma` is the cache context's, or else timestep / 1000.
    """

    step: int
    steps: int
    sigma: float

    @property
    def is_last(self) -> bool:
        return self.step == self.steps - 1


def timesteps_address(*given: Any) -> int | None:
    """Memory address of the pipeline's tensor of timesteps, of which one `given` is a view; None if none is. Timesteps
    by token (Wan2.2 TI2V) are no views, because their row of tokens is made for each call.
    """
    return next((address for value in given if (address := _address_beneath(value)) is not None), None)


def _address_beneath(timestep: Any) -> int | None:
    if type(timestep) is not Tensor or timestep.is_meta:
        return None
    if any(stride and size > 1 for size, stride in zip(timestep.shape, timestep.stride(), strict=True)):
        return None
    storage = timestep.untyped_storage()
    count = storage.nbytes() // timestep.element_size()
    return storage.data_ptr() if count not in (1, timestep.numel()) else None


def _place_in(timesteps: Any, timestep: Any) -> int | None:
    """Index of `timestep` in the tensor `timesteps` of which it is a view, without reading either; else None."""
    address = timesteps_address(timestep)
    if address is None or not isinstance(timesteps, Tensor) or timesteps.dtype != timestep.dtype or timesteps.ndim != 1:
        return None
    if timesteps.untyped_storage().data_ptr() != address:
        return None
    place, rest = divmod(timestep.storage_offset() - timesteps.storage_offset(), max(1, timesteps.stride(0)))
    return place if rest == 0 and 0 <= place < len(timesteps) else None


def is_between_steps(scheduler: Any | None, current: Any) -> bool:
    """Whether the scheduler has stepped, but the pipeline, whose timestep is `current`, is still in the step before, as
    in a callback, so that another pipeline makes the call."""
    index, own = getattr(scheduler, "step_index", None), getattr(scheduler, "timesteps", None)
    if index is None or not isinstance(own, Tensor) or index >= len(own):
        return False
    if isinstance(current, int | float):
        return values_of(own)[index] != current
    return _place_in(own, current) not in (None, index)


def driving(context: CacheContext | None, scheduler: Any | None, timestep: Any) -> Any | None:
    """`scheduler`; None if sigma or timestep show that a scheduler of another loop drives the call."""
    sigmas, own = sigmas_in(scheduler), getattr(scheduler, "timesteps", None)
    if context is not None and context.sigma is not None and context.step_index is not None and sigmas is not None:
        step = context.step_index
        if not 0 <= step < len(sigmas) or abs(sigmas[step] - context.sigma) > ROUNDING * max(1.0, abs(context.sigma)):
            return None
    given = (timestep, context.timestep if context else None)
    used = timesteps_address(*given)
    if used is None or not isinstance(own, Tensor) or all(getattr(one, "device", None) != own.device for one in given):
        return scheduler
    return scheduler if own.untyped_storage().data_ptr() == used else None


def locate(context: CacheContext | None, scheduler: Any | None, timestep: Tensor | float | None) -> StepInfo | None:
    """The step from the cache context or else the scheduler; None if index, count or noise level is unknown."""
    given = context or CacheContext("none")
    step, steps, sigma = given.step_index, given.num_inference_steps, given.sigma
    # Models that scale their timestep receive one that the scheduler does not know; the context has the scheduler's.
    stated = timestep if given.timestep is None else given.timestep
    timesteps, sigmas = getattr(scheduler, "timesteps", None), sigmas_in(scheduler)
    if steps is None and timesteps is not None:
        steps = len(timesteps)
    if step is None:
        step = _scheduler_step(scheduler, timesteps, stated, timestep)
    if step is None or steps is None or not 0 <= step < steps:
        return None
    if sigma is None and sigmas is not None and step < len(sigmas):
        sigma = sigmas[step]
    if sigma is not None:
        return StepInfo(step, steps, sigma if sigmas is None else noise_level(sigma, sigmas))
    if stated is None:
        return None
    if timesteps is not None and (place := _place_in(timesteps, stated)) is not None:
        return StepInfo(step, steps, values_of(timesteps)[place] / 1000)
    # Given tokens, such as a first frame, have a smaller timestep than the denoised ones.
    return StepInfo(step, steps, float(stated.max() if isinstance(stated, Tensor) else stated) / 1000)


def noise_level(sigma: float, sigmas: Sequence[float]) -> float:
    """Weight of the noise in [0, 1] for one of a scheduler's `sigmas`; the weight falls from step to step. Flow
    schedulers' sigmas are these weights; Mochi's rise, and are 1 minus the weight. Variance-exploding ones, such as
    Cosmos', have x = clean + sigma noise; as a linear mix, the weight is sigma / (1 + sigma).
    """
    if sigmas[0] < sigmas[-1]:
        return 1 - sigma
    return sigma / (1 + sigma) if sigmas[0] > 1 + ROUNDING else sigma


def sigmas_of(scheduler: Any | None, steps: int) -> tuple[float, ...] | None:
    """Noise level of every step; None if the scheduler gives too few sigmas, or levels that rise or leave [0, 1]."""
    sigmas = sigmas_in(scheduler)
    if sigmas is None or len(sigmas) < steps:
        return None
    levels = (noise_level(sigma, sigmas) for sigma in sigmas[:steps])
    # Flow shifts round the first level to a little more than 1.
    values = tuple(1.0 if 1 < level < 1 + ROUNDING else level for level in levels)
    falling = all(after <= before for before, after in pairwise(values))
    return values if falling and values[-1] >= 0 and values[0] <= 1 else None


class Noise(Enum):
    """Whether a scheduler draws noise in every step; POSSIBLE if only `eta` or `s_churn` of its step says so,
    UNKNOWN without a scheduler."""

    NONE, POSSIBLE, DRAWN, UNKNOWN = range(4)


def noise_of(scheduler: Any | None) -> Noise:
    """Whether the scheduler draws noise in every step, so that an output belongs to the noise of its step."""
    if scheduler is None:
        return Noise.UNKNOWN
    config, name = getattr(scheduler, "config", None), type(scheduler).__name__
    is_sde = str(getattr(config, "algorithm_type", "")).startswith("sde")
    if is_sde or getattr(config, "stochastic_sampling", False) or any(part in name for part in STOCHASTIC):
        return Noise.DRAWN
    step = getattr(scheduler, "step", None)
    arguments = () if step is None else inspect.signature(step).parameters
    # FlowMatchEuler ignores `s_churn`, and FlowMatchHeun adds so little by it that velocities are still reused best.
    churns = "s_churn" in arguments and not name.startswith("FlowMatch")
    return Noise.POSSIBLE if "eta" in arguments or churns else Noise.NONE


def draws_noise(scheduler: Any | None) -> bool:
    """Whether the scheduler is stochastic, so that earlier outputs no longer add up linearly; False for None."""
    return noise_of(scheduler) is Noise.DRAWN


def sigmas_in(scheduler: Any | None) -> list[float] | None:
    """A scheduler's sigmas; None if it has none."""
    sigmas = getattr(scheduler, "sigmas", None)
    if sigmas is None:
        return None
    return values_of(sigmas) if isinstance(sigmas, Tensor) else [float(sigma) for sigma in sigmas]


def _may_be(timesteps: Tensor, step: int, stated: Tensor | float | None) -> bool:
    """False if `stated` is the timestep of another step; compared only in host memory, never on the device."""
    if isinstance(stated, Tensor) and (stated.device.type != "cpu" or timesteps_address(stated) is not None):
        return True
    if stated is None or timesteps.device.type != "cpu" or step >= len(timesteps):
        return True
    value = float(stated.max() if isinstance(stated, Tensor) else stated)
    known = values_of(timesteps)
    return value not in known or known[step] == value


def values_of(tensor: Tensor) -> list[float]:
    """The values of a tensor, read only once if it does not change, because reading from a GPU waits for its queue."""
    version = None if tensor.is_inference() else tensor._version
    if _READ.get(tensor, (-1,))[0] != version:
        _READ[tensor] = version, tensor.tolist()
    return _READ[tensor][1]


def _scheduler_step(
    scheduler: Any | None, timesteps: Tensor | None, stated: Tensor | float | None, received: Tensor | float | None
) -> int | None:
    """Index of the step: the scheduler's counter, or else the position of the largest value of `stated` in `timesteps`.
    First steps may have no counter; their index is above 0 where video-to-video begins in mid-schedule. Given tokens
    have a smaller value, such as 0, not in `timesteps`. `received` is the transformer's argument; `stated` is the cache
    context's, or else `received`.
    """
    if scheduler is None or timesteps is None:
        return None
    step = getattr(scheduler, "step_index", None)
    if step is None:
        step = getattr(scheduler, "begin_index", getattr(scheduler, "counter", None))  # PNDM counts its steps
    if step is not None:
        return int(step) if _may_be(timesteps, int(step), stated) else None
    if (place := _place_in(timesteps, received)) is not None:
        return place
    if stated is not None:
        known, both = timesteps.float(), (stated if received is None else received, stated)
        received, stated = (torch.as_tensor(one, dtype=torch.float, device=known.device) for one in both)
        is_stated = known == stated.max()
        numbers = torch.isin(known, received).sum(), is_stated.sum(), is_stated.int().argmax()
        different, found, place = torch.stack(numbers).tolist()  # the host waits once
        if different > 1:
            return None  # asynchronous diffusion forcing: the frames are at different steps
        if found:
            return int(place)
    return 0 if hasattr(scheduler, "step_index") else None
