"""Which step of which generation a transformer call belongs to, from the call itself, never from a count of calls."""

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from diffusers.hooks.hooks import CacheContext
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

ROUNDING = 1e-5  # of noise levels in float32
STOCHASTIC = ("Ancestral", "CMStochastic", "CogVideoXDPM", "CosineDPM", "DDPM", "LCM", "SASolver", "SCM", "SDE", "TCD")
"""Parts of the names of diffusers' schedulers that draw noise in every step, whatever their configuration."""
_READ_SIGMAS = WeakTensorKeyDictionary()


@dataclass(frozen=True)
class StepInfo:
    """A step: its index from 0, the number of steps, and its noise level in [0, 1] (`noise_level`, or timestep / 1000
    without sigmas).
    """

    step: int
    steps: int
    sigma: float

    @property
    def is_last(self) -> bool:
        return self.step == self.steps - 1


@dataclass(frozen=True)
class Signature:
    """What is the same in all calls of one transformer in one generation."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    adapters: tuple[Any, ...]

    def switches_guidance(self, other: "Signature") -> bool:
        """Whether only the batch differs, by half or twice: guidance as one batch was switched off or on."""
        small, large = sorted((self.shape[0], other.shape[0]))
        return 2 * small == large and replace(other, shape=(self.shape[0], *other.shape[1:])) == self


@dataclass(frozen=True)
class Arrival:
    """A call that arrives at the transformer `component`: all that tells which generation it belongs to.

    `branch` is None where the pipeline names none, `latent` where the branches of a step do not share it, and
    `timesteps`, the memory of the pipeline's timesteps, where the call's timestep is no view of it. `scheduler` is the
    one that drives the call; None where it is unknown.
    """

    component: str
    branch: str | None
    info: StepInfo
    signature: Signature
    text: Tensor | None
    latent: Tensor | None
    timesteps: int | None = None
    scheduler: Any | None = None


def timesteps_of(timestep: Any) -> int | None:
    """The memory that a pipeline's timesteps lie in, if `timestep` is a view of one of them.

    Such a view repeats one element. Timesteps by token (Wan2.2 TI2V) are views of a row made for the call.
    """
    if type(timestep) is not Tensor or timestep.is_meta:
        return None
    if any(stride and size > 1 for size, stride in zip(timestep.shape, timestep.stride(), strict=True)):
        return None
    storage = timestep.untyped_storage()
    count = storage.nbytes() // timestep.element_size()
    return storage.data_ptr() if count not in (1, timestep.numel()) else None


def signature_of(transformer: nn.Module, latent: Tensor) -> Signature:
    """The signature of a call with this latent input."""
    return Signature(tuple(latent.shape), latent.dtype, latent.device, adapter_states(transformer))


def records_gradients(transformer: nn.Module, inputs: Mapping[str, Any]) -> bool:
    """Whether the output of a call with these inputs is part of a graph for backward."""
    if not torch.is_grad_enabled():
        return False
    tensors = (value for value in inputs.values() if isinstance(value, Tensor))
    return any(one.requires_grad for one in (*tensors, *transformer.parameters()))


def adapter_states(transformer: nn.Module) -> tuple[Any, ...]:
    """What is active in each layer with adapters, since LoRA scales may differ from block to block, and be switched
    off or merged.
    """
    if not getattr(transformer, "_hf_peft_config_loaded", False):
        return ()
    layers: list[Any] = [layer for layer in transformer.modules() if isinstance(getattr(layer, "scaling", 0), dict)]
    return tuple(
        (tuple(layer.active_adapters), scales_of(layer), layer.disable_adapters, layer.merged) for layer in layers
    )


def scales_of(layer: Any) -> tuple[tuple[str, float], ...]:
    """The scale of each adapter of a layer to six decimals, because pipelines that scale and unscale them round."""
    return tuple((name, round(scale, 6)) for name, scale in layer.scaling.items())


def adapters_of(transformer: nn.Module) -> tuple[str, ...]:
    """Names of the active adapters, sorted."""
    if not getattr(transformer, "_hf_peft_config_loaded", False):
        return ()
    return tuple(sorted(transformer.active_adapters()))  # type: ignore[operator]


class KnownInput:
    """An input of a generation, by which it is told from another one that alternates on the same transformer.

    It is the text of a branch, the same at all steps, or the latent, the same in all calls of a step.
    """

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = weakref.ref(tensor)
        self._values = tensor.detach()

    def equals(self, tensor: Tensor | None) -> bool:
        """Whether this is the tensor again, or one with the same values."""
        values = self._values
        if tensor is None or tensor is self._tensor():
            return tensor is not None
        same_kind = tensor.shape == values.shape and tensor.dtype == values.dtype and tensor.device == values.device
        return same_kind and torch.equal(tensor, values)

    def goes_on_as(self, tensor: Tensor | None) -> bool:
        """Whether this is the same tensor, or its successor.

        Pipelines pass one and the same tensor. Loops that create it anew for each call have dropped the previous one by
        then, so a different tensor while the previous one lives belongs to another generation, whatever its values.
        """
        known = self._tensor()
        return tensor is known if known is not None else self.equals(tensor)


def driving(context: CacheContext | None, scheduler: Any | None, timestep: Any) -> Any | None:
    """`scheduler`, or None if the call shows that another one drives it, of a pipeline on the same transformer."""
    sigmas = _sigmas(scheduler)
    if context is None or context.sigma is None or context.step_index is None or sigmas is None:
        return scheduler
    step, own, used = context.step_index, getattr(scheduler, "timesteps", None), timesteps_of(timestep)
    if not 0 <= step < len(sigmas) or abs(sigmas[step] - context.sigma) > ROUNDING * max(1.0, abs(context.sigma)):
        return None
    if used is not None and isinstance(own, Tensor) and own.device == timestep.device:
        return scheduler if own.untyped_storage().data_ptr() == used else None
    return scheduler


def locate(context: CacheContext | None, scheduler: Any | None, timestep: Tensor | float | None) -> StepInfo | None:
    """The step of a call, from the pipeline's cache context or else from its scheduler; None if both lack it."""
    given = context or CacheContext("none")
    step, steps, sigma = given.step_index, given.num_inference_steps, given.sigma
    timesteps, sigmas = getattr(scheduler, "timesteps", None), _sigmas(scheduler)
    if steps is None and timesteps is not None:
        steps = len(timesteps)
    if step is None:
        step = _scheduler_step(scheduler, timesteps, timestep)
    if step is None or steps is None or not 0 <= step < steps:
        return None
    if sigma is None and sigmas is not None and step < len(sigmas):
        sigma = sigmas[step]
    if sigma is not None:
        return StepInfo(step, steps, sigma if sigmas is None else noise_level(sigma, sigmas))
    if timestep is None:
        return None
    # Given tokens, such as a first frame, have a smaller timestep than the denoised ones.
    return StepInfo(step, steps, float(torch.as_tensor(timestep).max()) / 1000)


def noise_level(sigma: float, sigmas: Sequence[float]) -> float:
    """The weight of the noise in [0, 1] for one of a scheduler's sigmas, falling from step to step.

    Flow schedulers give it, and those of Mochi 1 minus it (they rise). Schedulers whose noise variance explodes, such
    as Cosmos', give sigma for x = clean + sigma noise, which is sigma / (1 + sigma) after scaling to a linear mix.
    """
    if sigmas[0] < sigmas[-1]:
        return 1 - sigma
    return sigma / (1 + sigma) if sigmas[0] > 1 + ROUNDING else sigma


def sigmas_of(scheduler: Any | None, steps: int) -> tuple[float, ...] | None:
    """The noise level of every step; None if the scheduler gives none, or if they do not fall."""
    sigmas = _sigmas(scheduler)
    if sigmas is None or len(sigmas) < steps:
        return None
    levels = (noise_level(sigma, sigmas) for sigma in sigmas[:steps])
    # Flow shifts round the first one to a little more than 1.
    values = tuple(1.0 if 1 < level < 1 + ROUNDING else level for level in levels)
    falling = all(after <= before for before, after in pairwise(values))
    return values if falling and values[-1] >= 0 and values[0] <= 1 else None


def draws_noise(scheduler: Any | None) -> bool:
    """Whether the scheduler replaces the latent's noise in every step, and with it what earlier outputs have added."""
    config = getattr(scheduler, "config", None)
    differential = str(getattr(config, "algorithm_type", "")).startswith("sde")
    sampled = differential or bool(getattr(config, "stochastic_sampling", False))
    return sampled or any(name in type(scheduler).__name__ for name in STOCHASTIC)


def _sigmas(scheduler: Any | None) -> list[float] | None:
    """A scheduler's sigmas; a tensor is read once, because some lie on the GPU, where reading waits for its queue."""
    sigmas = getattr(scheduler, "sigmas", None)
    if not isinstance(sigmas, Tensor):
        return None if sigmas is None else [float(sigma) for sigma in sigmas]
    if sigmas not in _READ_SIGMAS:
        _READ_SIGMAS[sigmas] = sigmas.tolist()
    return _READ_SIGMAS[sigmas]


def _scheduler_step(scheduler: Any | None, timesteps: Tensor | None, timestep: Tensor | float | None) -> int | None:
    """The scheduler's own step counter. Before its first step, and without a counter, the timestep is looked up,
    because video-to-video generations begin in the middle of the schedule.
    """
    if scheduler is None or timesteps is None:
        return None
    step = getattr(scheduler, "step_index", None)
    if step is None:
        step = getattr(scheduler, "begin_index", None)
    if step is not None:
        return int(step)
    if timestep is not None:
        known, given = timesteps.double(), torch.as_tensor(timestep, dtype=torch.double, device=timesteps.device)
        if torch.isin(known, given).sum() > 1:
            return None  # asynchronous diffusion forcing: the frames are at different steps
        found = (known == given.max()).nonzero()
        if len(found):
            return int(found[0])
    return 0 if hasattr(scheduler, "step_index") else None
