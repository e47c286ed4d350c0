"""Where calls come from: the pipeline or bare transformer, and the scheduler that drives it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from diffusers.hooks.hooks import CacheContext
from torch import nn

from galaxydit.runtime.step import driving, is_between_steps, timesteps_address


@dataclass(frozen=True)
class Source:
    """The pipeline or bare transformer; its scheduler may be exchanged, so it is read at each use, unless passed."""

    pipe: Any
    transformer: nn.Module
    own_scheduler: Any | None = None

    @property
    def device(self) -> torch.device:
        """The device that computes the transformer; with offloading, the transformer may still be elsewhere."""
        first = next(self.transformer.parameters(), None)
        own = torch.device("cpu") if first is None else first.device
        return getattr(self.pipe, "_execution_device", own) or own

    @property
    def scheduler(self) -> Any | None:
        own = self.own_scheduler
        return getattr(self.pipe, "scheduler", None) if own is None else own

    def scheduler_of(self, context: CacheContext | None, timestep: Any) -> Any | None:
        """The scheduler that drives the call; None if the call does not fit it, as when another pipeline calls."""
        current = getattr(self.pipe, "_current_timestep", None)
        if is_between_steps(self.scheduler, current):
            return None
        used = timesteps_address(timestep, context.timestep if context else None)
        if used is not None and used == timesteps_address(current):
            timestep = None  # the pipeline walks along another tensor of timesteps than its scheduler holds
        return driving(context, self.scheduler, timestep)

    @property
    def is_running(self) -> bool:
        """Whether the pipeline's own loop is under way, which steps one latent from call to call."""
        return getattr(self.pipe, "_current_timestep", None) is not None

    @property
    def may_be_running(self) -> bool:
        return getattr(self.pipe, "_current_timestep", self.pipe is not self.transformer or None) is not None


Differences = Callable[[int, tuple[float, ...] | None, Source, tuple[int, ...], int], tuple[list[str], list[str]]]
"""From a generation's number of steps, sigmas, source, latent shape without the batch and first step to notes and
warnings."""
