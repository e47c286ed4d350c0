"""The linear response of the final latent to the predictions of each step, for any scheduler."""

from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

import torch

TOLERANCE = 1e-3  # of the largest response; schedulers in float32 stay far below
UNMEASURABLE = (AttributeError, IndexError, RuntimeError, TypeError, ValueError)


@torch.no_grad()
def scheduler_response(scheduler: Any, sigmas: Sequence[float], first: int = 0) -> tuple[float, ...]:
    """Linear response of the final latent to each step's prediction, `(steps,)`, with all later predictions held fixed.

    Schedulers that use a prediction in several steps (UniPC, DPM++), or call the model several times in each (Heun),
    have another response than Euler's; UniPC most of all in the last steps. It is measured by running a fresh scheduler
    on one impulse per step, in about a millisecond per step.

    Args:
        scheduler: as it stands in a generation, with its timesteps set. Neither it nor the random state is changed.
        sigmas: noise level of each step.
        first: where the generation begins. Earlier steps get 0.

    Returns Euler's response for schedulers that are stochastic, clip, or need more arguments than a pipeline passes.
    """
    steps = len(sigmas)
    # Rows of the batch: a prediction of 1 at one step each, at all steps, and at no step. The last two test linearity.
    impulses = torch.cat([torch.eye(steps), torch.ones(1, steps), torch.zeros(1, steps)]).double()
    latent = torch.zeros(steps + 2, 1, 1, 1, 1, dtype=torch.float64)
    with suppress(*UNMEASURABLE), torch.random.fork_rng(devices=()):
        fresh = _fresh(scheduler, first)
        for step in range(first, steps):
            prediction = impulses[:, step].reshape(latent.shape)
            latent = fresh.step(prediction, fresh.timesteps[step], latent, return_dict=False)[0]
        *responses, together, nothing = (-latent.flatten()).tolist()
        allowed = TOLERANCE * max(map(abs, responses))
        if len(fresh.timesteps) == steps and abs(nothing) <= allowed and abs(together - sum(responses)) <= allowed:
            return tuple(responses)
    return euler_response(sigmas)


def _fresh(scheduler: Any, first: int) -> Any:
    """A scheduler of the same class and configuration at the same timesteps, before the step `first`."""
    changed = {"use_dynamic_shifting": False} if "use_dynamic_shifting" in scheduler.config else {}  # it asks for more
    fresh = type(scheduler).from_config(scheduler.config, **changed)
    fresh.set_timesteps(scheduler.num_inference_steps)
    for name in ("timesteps", "sigmas"):  # a pipeline may have chosen its own
        if hasattr(scheduler, name):
            setattr(fresh, name, getattr(scheduler, name).cpu())
    if hasattr(fresh, "set_begin_index"):
        fresh.set_begin_index(first)
    return fresh


def euler_response(sigmas: Sequence[float]) -> tuple[float, ...]:
    """The response of Euler's method, `sigmas[i] - sigmas[i + 1]`, with 0 after the last."""
    return tuple(high - low for high, low in pairwise((*sigmas, 0.0)))
