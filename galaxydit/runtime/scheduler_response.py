"""The linear response of the final latent to the model's prediction at each step, for any scheduler."""

import inspect
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any

import torch

from galaxydit.schedulers import ROUNDING, draws_noise, sigmas_in, values_of

TOLERANCE = 1e-3  # of the largest response; schedulers in float32 stay far below


@dataclass(frozen=True)
class _Settings:
    """What the response depends on: the scheduler's class, configuration and values, and the first step that runs."""

    scheduler: type
    configuration: str
    inference_steps: int
    levels: tuple[float, ...]  # sigmas, which a pipeline may have chosen; timesteps of a scheduler without sigmas
    first: int
    arguments: Mapping[str, Any] = field(compare=False)
    tensors: Mapping[str, torch.Tensor] = field(compare=False)  # "timesteps" and "sigmas"

    @classmethod
    def of(cls, scheduler: Any, first: int) -> "_Settings":
        known = _parameters(type(scheduler).__init__)
        config = {name: value for name, value in scheduler.config.items() if name in known}
        if "use_dynamic_shifting" in config:
            config["use_dynamic_shifting"] = False  # set_timesteps would need `mu`, and its timesteps are replaced
        tensors = {name: getattr(scheduler, name) for name in ("timesteps", "sigmas") if hasattr(scheduler, name)}
        told_by = "sigmas" if "sigmas" in tensors else "timesteps"
        levels = tuple(values_of(tensors[told_by]))
        return cls(type(scheduler), repr(config), scheduler.num_inference_steps, levels, first, config, tensors)

    def fresh(self) -> Any:
        """A scheduler of the same class and configuration at the same timesteps, before the step `first`."""
        fresh = self.scheduler(**self.arguments)
        fresh.set_timesteps(self.inference_steps)
        for name, tensor in self.tensors.items():
            setattr(fresh, name, tensor.cpu())
        if hasattr(fresh, "set_begin_index"):
            fresh.set_begin_index(self.first)
        fresh.is_scale_input_called = True  # else some schedulers warn at every step
        return fresh


def scheduler_response(scheduler: Any, sigmas: Sequence[float], first: int = 0) -> tuple[float, ...]:
    """Linear response of the final latent to each step's prediction, `(steps,)`, with all others held fixed. It is
    positive where a larger prediction makes the final latent smaller, and 0 before the step `first`. Neither
    `scheduler` nor the random state changes. Stochastic, clipping or failing schedulers get Euler's.
    """
    measured = None
    if not draws_noise(scheduler) and not _is_preconditioned_outside(scheduler):
        with suppress(Exception):  # whatever a scheduler lacks, the generation must go on
            measured = _measured(_Settings.of(scheduler, first), len(sigmas))
    return euler_response(sigmas) if measured is None else measured


@lru_cache(maxsize=16)
@torch.no_grad()
def _measured(settings: _Settings, steps: int) -> tuple[float, ...] | None:
    """The response of a fresh scheduler to one impulse per step, because UniPC, DPM++ and Heun respond otherwise than
    Euler; None unless it is linear. Kept, because it takes 2 ms per step with UniPC.
    """
    # Rows of the batch: a prediction of 1 at one step each, at all steps, and at no step. The last two test linearity.
    impulses = torch.eye(steps + 2, steps, dtype=torch.float64, device="cpu")
    impulses[steps] = 1.0
    latent = torch.zeros(steps + 2, 1, 1, 1, 1, dtype=torch.float64, device="cpu")
    with torch.device("cpu"), suppress(Exception):  # whatever a scheduler raises here, the generation must go on
        fresh = settings.fresh()
        own_noise = {}
        if "generator" in _parameters(fresh.step):
            own_noise["generator"] = torch.Generator()  # the user's random state stays as it is
        for step in range(settings.first, steps):
            prediction = impulses[:, step].reshape(latent.shape)
            latent = fresh.step(prediction, fresh.timesteps[step], latent, return_dict=False, **own_noise)[0]
        *responses, together, nothing = (-latent.flatten()).tolist()
        allowed = TOLERANCE * max(map(abs, responses))
        is_linear = abs(nothing) <= allowed and abs(together - sum(responses)) <= allowed
        if is_linear and len(fresh.timesteps) == steps:
            return tuple(responses)
    return None


def _is_preconditioned_outside(scheduler: Any) -> bool:
    """Whether the pipeline scales outputs before the scheduler (Cosmos-Predict2), so that Euler's response holds."""
    sigmas = sigmas_in(scheduler)
    return type(scheduler).__name__.startswith("FlowMatch") and sigmas is not None and sigmas[0] > 1 + ROUNDING


def _parameters(function: Any) -> Sequence[str]:
    return list(inspect.signature(function).parameters)


def euler_response(sigmas: Sequence[float]) -> tuple[float, ...]:
    """Euler's response, `sigmas[i] - sigmas[i + 1]`, `(steps,)`; the last step goes to 0, not in `sigmas`."""
    return tuple(high - low for high, low in pairwise((*sigmas, 0.0)))
