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
    """Linear response of the final latent to the model's prediction at each step, one number for each step.

    The predictions of all other steps are held fixed. The sign is that of `euler_response`: positive where a larger
    prediction makes the final latent smaller. Schedulers that use a prediction in several steps (UniPC, DPM++), or call
    the model several times in each step (Heun), have another response than Euler's; with UniPC the last steps differ
    most. The response is measured by running a fresh scheduler on one impulse per step, which takes UniPC two
    milliseconds per step.

    Args:
        scheduler: the generation's scheduler, with its timesteps set. Neither it nor the random state is changed.
        sigmas: noise level of each step.
        first: index of the step with which the generation begins. The measured response of earlier steps is 0.

    Returns Euler's response for schedulers that are stochastic, clip, need more arguments than a pipeline passes, or
    cannot be measured for any other reason.
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
    """Whether the pipeline scales the model's outputs before the scheduler gets them: True for a flow-matching
    scheduler with sigmas above 1, as Cosmos-Predict2 has.

    The response to the model's own outputs is then `euler_response` of the noise levels, not the scheduler's.
    """
    sigmas = getattr(scheduler, "sigmas", None)
    return type(scheduler).__name__.startswith("FlowMatch") and sigmas is not None and float(sigmas[0]) > 1 + ROUNDING


def _parameters(function: Any) -> Sequence[str]:
    return list(inspect.signature(function).parameters)


def euler_response(sigmas: Sequence[float]) -> tuple[float, ...]:
    """The response of Euler's method to the prediction of each step, `sigmas[i] - sigmas[i + 1]`, `(steps,)`.

    `sigmas` has one noise level for each step, without a trailing 0; the last step goes down to 0.
    """
    return tuple(high - low for high, low in pairwise((*sigmas, 0.0)))
