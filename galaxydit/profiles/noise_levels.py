"""Plain steps at the noise levels of the planned full steps: what a schedule gains without any cache."""

import inspect
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from galaxydit.errors import check_count, proposing, refusal
from galaxydit.policies.general_schedule import unshifted
from galaxydit.policies.policy import Observation
from galaxydit.policies.schedule import Schedule
from galaxydit.profiles.planned_scheduler import at_levels, shift_of, without_levels
from galaxydit.profiles.resolve import resolve
from galaxydit.profiles.schema import Profile
from galaxydit.request import SCHEDULE, Request
from galaxydit.schedulers import sigmas_of


@dataclass(frozen=True)
class NoiseLevels:
    """The noise levels of planned full steps, falling.

    Attributes:
        full_steps: their indices among all steps.
        levels: weights of the noise in [0, 1]. timesteps: what the transformer receives there.
        sigmas: for `pipe(sigmas=...)` or `scheduler.set_timesteps(sigmas=...)`, which shift them to `levels`.
        scheduler: a copy of the pipeline's that always samples at these levels, for pipelines that take no sigmas.
    """

    full_steps: tuple[int, ...]
    levels: tuple[float, ...]
    timesteps: tuple[float, ...]
    sigmas: tuple[float, ...]
    scheduler: Any


def planned_steps(pipe: Any, speedup: float, profile: Any = None) -> Callable[[Sequence[float]], tuple[int, ...]]:
    """Function from the noise levels of all steps to the indices of the full steps that are planned for a speedup."""
    config = resolve(pipe, Request(speedup=speedup, policy=SCHEDULE, profile=profile)).config
    schedule, limits = config.policy, config.limits
    assert isinstance(schedule, Schedule)  # of `policy=SCHEDULE`, with a profile and without
    return lambda levels: schedule.place(Observation(0, len(levels), None, False, sigmas=tuple(levels), limits=limits))


@proposing
def noise_levels(
    pipe: Any, speedup: float = 2.0, steps: int = 50, *, profile: Profile | str | Path | None = None
) -> NoiseLevels:
    """The noise levels of the full steps that `accelerate` plans for a speedup of `steps` steps, for plain sampling.

    Raises GalaxyDiTError where the scheduler takes no noise levels, or knows them only with the size of a video, and
    the errors of `accelerate`.
    """
    steps = check_count("steps", steps, minimum=2)
    choose = planned_steps(pipe, speedup, profile)
    scheduler = deepcopy(without_levels(getattr(pipe, "scheduler", None)))
    name, config = type(scheduler).__name__, getattr(scheduler, "config", {})
    unsuited = refusal(
        "scheduler", name, "one whose set_timesteps takes sigmas, with a fixed shift", "accelerate the pipeline instead"
    )
    if not hasattr(scheduler, "set_timesteps"):
        raise unsuited
    takes_sigmas = "sigmas" in inspect.signature(scheduler.set_timesteps).parameters
    if not takes_sigmas or config.get("use_dynamic_shifting"):
        raise unsuited
    scheduler.set_timesteps(steps)
    known = sigmas_of(scheduler, steps)
    if known is None:
        raise unsuited
    full_steps = choose(known)
    levels = np.array([known[step] for step in full_steps])
    sigmas = tuple(unshifted(levels, shift_of(scheduler)).tolist())
    own = at_levels(scheduler, levels.tolist())
    try:
        own.set_timesteps()
    except ValueError:  # UniPC takes sigmas for flow models alone
        raise unsuited from None
    reached = sigmas_of(own, len(levels))
    # EulerDiscreteScheduler takes the last sigma for the end of sampling, and would leave its noise in the video.
    if len(own.timesteps) != len(levels) or reached is None or not np.allclose(reached, levels, atol=1e-4):
        raise unsuited
    return NoiseLevels(full_steps, tuple(levels.tolist()), tuple(own.timesteps.tolist()), sigmas, own)
