"""The step that a loop begins with, where no cache context tells it."""

from typing import Any

import torch
from diffusers.hooks.hooks import CacheContext
from torch import Tensor

from galaxydit.schedulers import counter_of


def first_step(scheduler: Any, context: CacheContext | None, timestep: Any, *, is_late: bool = False) -> int:
    """The step that a loop or window begins with: above 0 where video-to-video begins in the middle. With `is_late`,
    the scheduler's counter may be of another window that has stepped."""
    counter = counter_of(scheduler)
    begin_index = getattr(scheduler, "begin_index", None)
    if counter and not is_late:
        return counter
    if begin_index is not None and not is_late:
        return int(begin_index)
    stated = timestep
    if context is not None and context.timestep is not None:
        stated = context.timestep
    timesteps = getattr(scheduler, "timesteps", None)
    if stated is None or not isinstance(timesteps, Tensor):
        return 0
    # Given tokens, such as a first frame, have a smaller timestep than the denoised ones.
    largest = torch.as_tensor(stated).max().to(timesteps.device)
    places = (timesteps.float() == largest.float()).nonzero()
    if len(places):
        return int(places[0])
    return counter or 0
