"""The linear response of the final latent to the model's prediction at each step, for any scheduler."""

import inspect
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

import torch

from galaxydit.runtime.step import ROUNDING, draws_noise

TOLERANCE = 1e-3  # of the largest response; schedulers in float32 stay far below


@torch.no_grad()
def scheduler_response(scheduler: Any, sigmas: Sequence[float], first: int = 0) -> tuple[float, ...]:
    """Linear response of the final latent to each step's prediction, `(steps,)`, with all others held fixed. It is
    positive where a larger prediction makes the final latent smaller, and 0 before the step `first`. A fresh scheduler
    runs one impulse per step, because UniPC, DPM++ and Heun respond otherwise than Euler (UniPC: 2 ms per step).
    Neither `scheduler` nor the random state changes. Stochastic, clipping or failing schedulers get Euler's.
    """
    if draws_noise(scheduler) or _is_preconditioned_outside(scheduler):
        return euler_response(sigmas)
    steps = len(sigmas)
    # Rows of the batch: a prediction of 1 at one step each, at all steps, and at no step. The last two test linearity.
    impulses = torch.eye(steps + 2, steps, dtype=torch.float64, device="cpu")
    impulses[steps] = 1.0
    latent = torch.zeros(steps + 2, 1, 1, 1, 1, dtype=torch.float64, device="cpu")
    with torch.device("cpu"), suppress(Exception):  # whatever a scheduler raises here, the generation must go on
        fresh = _fresh(scheduler, first)
        own_noise = {"generator": torch.Generator()} if "generator" in _parameters(fresh.step) else {}
        for step in range(first, steps):
            prediction = impulses[:, step].reshape(latent.shape)
            latent = fresh.step(prediction, fresh.timesteps[step], latent, return_dict=False, **own_noise)[0]
        *responses, together, nothing = (-latent.flatten()).tolist()
        allowed = TOLERANCE * max(map(abs, responses))
        if len(fresh.timesteps) == steps and abs(nothing) <= allowed and abs(together - sum(responses)) <= allowed:
            return tuple(responses)
    return euler_response(sigmas)


def _fresh(scheduler: Any, first: int) -> Any:
    """A scheduler of the same class and configuration at the same timesteps, before the step `first`."""
    known = _parameters(type(scheduler).__init__)
    config = {name: value for name, value in scheduler.config.items() if name in known}
    if "use_dynamic_shifting" in config:
        config["use_dynamic_shifting"] = False  # set_timesteps would need `mu`, and its timesteps are replaced below
    fresh = type(scheduler)(**config)
    fresh.set_timesteps(scheduler.num_inference_steps)
    for name in ("timesteps", "sigmas"):  # a pipeline may have chosen its own
        if hasattr(scheduler, name):
            setattr(fresh, name, getattr(scheduler, name).cpu())
    if hasattr(fresh, "set_begin_index"):
        fresh.set_begin_index(first)
    fresh.is_scale_input_called = True  # else some schedulers warn at every step
    return fresh


def _is_preconditioned_outside(scheduler: Any) -> bool:
    """Whether the pipeline scales outputs before the scheduler (Cosmos-Predict2), so that Euler's response holds."""
    sigmas = getattr(scheduler, "sigmas", None)
    return type(scheduler).__name__.startswith("FlowMatch") and sigmas is not None and float(sigmas[0]) > 1 + ROUNDING


def _parameters(function: Any) -> Sequence[str]:
    return list(inspect.signature(function).parameters)


def euler_response(sigmas: Sequence[float]) -> tuple[float, ...]:
    """Euler's response, `sigmas[i] - sigmas[i + 1]`, `(steps,)`; the last step goes to 0, not in `sigmas`."""
    return tuple(high - low for high, low in pairwise((*sigmas, 0.0)))
