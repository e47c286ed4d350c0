"""Where a transformer call stands in its generation, recognised from the call itself and never from a count of
calls.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from diffusers.hooks.hooks import CacheContext
from torch import Tensor, nn


@dataclass(frozen=True)
class StepInfo:
    """A step of a generation: index from 0, number of steps, and noise level (sigma, or timestep / 1000 without
    sigmas).
    """

    step: int
    steps: int
    sigma: float


@dataclass(frozen=True)
class Signature:
    """What stays the same for all calls of one transformer in one generation."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    adapters: tuple[str, ...]


def signature_of(transformer: nn.Module, latent: Tensor) -> Signature:
    """The signature of a call with this latent input."""
    adapters: tuple[str, ...] = ()
    if getattr(transformer, "_hf_peft_config_loaded", False):
        adapters = tuple(sorted(transformer.active_adapters()))  # type: ignore[operator]
    return Signature(tuple(latent.shape), latent.dtype, latent.device, adapters)


def locate(context: CacheContext | None, scheduler: Any | None, timestep: Tensor | float | None) -> StepInfo | None:
    """The step that a call belongs to, from the pipeline's cache context or else from its scheduler; None where
    neither tells.
    """
    timesteps = getattr(scheduler, "timesteps", None)
    steps = context.num_inference_steps if context else None
    if steps is None and timesteps is not None:
        steps = len(timesteps)
    step = context.step_index if context else None
    if step is None:
        step = _scheduler_step(scheduler, timesteps, timestep)
    if step is None or steps is None or not 0 <= step < steps:
        return None
    sigma = context.sigma if context else None
    if sigma is None:
        sigmas = getattr(scheduler, "sigmas", None)
        if sigmas is not None and step < len(sigmas):
            sigma = float(sigmas[step])
        elif timestep is not None:
            sigma = float(torch.as_tensor(timestep).flatten()[0]) / 1000
        else:
            return None
    return StepInfo(step, steps, sigma)


def sigmas_of(scheduler: Any | None, steps: int) -> tuple[float, ...] | None:
    """The noise level of every step, or None where the scheduler does not tell or they do not fall."""
    sigmas = getattr(scheduler, "sigmas", None)
    if sigmas is None or len(sigmas) < steps:
        return None
    values = tuple(float(sigma) for sigma in sigmas[:steps])
    falling = all(after <= before for before, after in pairwise(values))
    return values if falling and values[-1] >= 0 and values[0] <= 1 else None


def _scheduler_step(scheduler: Any | None, timesteps: Tensor | None, timestep: Tensor | float | None) -> int | None:
    """The scheduler's own step counter; schedulers without one are searched for the timestep."""
    if scheduler is None or timesteps is None:
        return None
    if hasattr(scheduler, "step_index"):
        if scheduler.step_index is not None:
            return int(scheduler.step_index)
        return int(getattr(scheduler, "begin_index", None) or 0)
    if timestep is None:
        return None
    value = torch.as_tensor(timestep).flatten()[0].to(timesteps.device)
    found = (timesteps == value).nonzero()
    return int(found[0]) if len(found) else None
