"""The linear response of the final latent to the predictions of each step, for any scheduler."""

from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

import torch

from galaxydit.calibration.recording import round_digits

TOLERANCE = 1e-3  # of the largest response; schedulers in float32 stay far below


@torch.no_grad()
def scheduler_response(scheduler: Any, sigmas: Sequence[float]) -> tuple[float, ...]:
    """Linear response of the final latent to each step's prediction, `(steps,)`, with all later predictions held fixed.

    Multistep schedulers (UniPC, DPM++) use a prediction in several steps, so their response differs from Euler's, most
    of all in the last steps. It is measured by running a fresh scheduler on one impulse per step.

    Args:
        scheduler: as it stands in a generation, with its timesteps set. It is not changed.
        sigmas: noise level of each step.

    Returns Euler's response for schedulers that are stochastic, clip, need more arguments than a pipeline passes, or do
    not arrive at the same timesteps.
    """
    fresh, steps = type(scheduler).from_config(scheduler.config), len(sigmas)
    # Rows of the batch: a prediction of 1 at one step each, at all steps, and at no step. The last two test linearity.
    impulses = torch.cat([torch.eye(steps), torch.ones(1, steps), torch.zeros(1, steps)]).double()
    latent = torch.zeros(steps + 2, 1, 1, 1, 1, dtype=torch.float64)
    with suppress(TypeError, ValueError):
        fresh.set_timesteps(steps)
        if len(scheduler.timesteps) != steps or not torch.equal(fresh.timesteps.cpu(), scheduler.timesteps.cpu()):
            return euler_response(sigmas)
        for step, timestep in enumerate(fresh.timesteps):
            latent = fresh.step(impulses[:, step].reshape(latent.shape), timestep, latent, return_dict=False)[0]
        *responses, together, nothing = (-latent.flatten()).tolist()
        allowed = TOLERANCE * max(map(abs, responses))
        if abs(nothing) <= allowed and abs(together - sum(responses)) <= allowed:
            return tuple(map(round_digits, responses))
    return euler_response(sigmas)


def euler_response(sigmas: Sequence[float]) -> tuple[float, ...]:
    """The response of Euler's method, `sigmas[i] - sigmas[i + 1]`, with 0 after the last."""
    return tuple(high - low for high, low in pairwise((*sigmas, 0.0)))
