"""What the scheduler makes of the predictions: how much each of them weighs in the final latent."""

from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

import torch

TOLERANCE = 1e-3  # of the largest response; a scheduler in float32 stays far below


def step_weights(scheduler: Any, sigmas: Sequence[float]) -> tuple[float, ...]:
    """What the prediction of each step weighs in the final latent, `(steps,)`, if later ones do not answer to it.

    Multistep schedulers (UniPC, DPM++) use a prediction more than once, and weigh the last few quite unlike Euler's:
    so a fresh scheduler is run on impulses, one for each step.

    Args:
        scheduler: as it stands in a generation, its timesteps set. It is not touched.
        sigmas: noise level of each step.

    A scheduler that adds noise, clips, wants to know more than a pipeline's arguments, or does not arrive at the same
    timesteps is taken for Euler's.
    """
    responses = _impulse_responses(scheduler, len(sigmas))
    if responses is None:
        return euler_weights(sigmas)
    return tuple(float(f"{value:.7g}") for value in responses)


def euler_weights(sigmas: Sequence[float]) -> tuple[float, ...]:
    """The same by Euler's rule: `sigmas[i] - sigmas[i + 1]`, down to 0."""
    return tuple(high - low for high, low in pairwise((*sigmas, 0.0)))


@torch.no_grad()
def _impulse_responses(scheduler: Any, steps: int) -> list[float] | None:
    timesteps = scheduler.timesteps
    if len(timesteps) != steps:
        return None
    fresh = type(scheduler).from_config(scheduler.config)
    # Rows of a batch: a prediction of 1 at one step each, at all steps, and at none.
    impulses = torch.cat([torch.eye(steps), torch.ones(1, steps), torch.zeros(1, steps)]).double()
    latent = torch.zeros(steps + 2, 1, 1, 1, 1, dtype=torch.float64)
    with suppress(TypeError, ValueError):
        fresh.set_timesteps(steps)
        if not torch.equal(fresh.timesteps.cpu(), timesteps.cpu()):
            return None
        for step, timestep in enumerate(fresh.timesteps):
            latent = fresh.step(impulses[:, step].reshape(latent.shape), timestep, latent, return_dict=False)[0]
        *responses, together, nothing = (-latent.flatten()).tolist()
        allowed = TOLERANCE * max(map(abs, responses))
        if abs(nothing) <= allowed and abs(together - sum(responses)) <= allowed:
            return responses
    return None
