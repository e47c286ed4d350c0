"""Where calls come from: the pipeline or bare transformer, and its scheduler."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn


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

    @property
    def may_be_running(self) -> bool:
        """Whether the pipeline's own loop is under way; True where the pipeline does not say."""
        return getattr(self.pipe, "_current_timestep", self.pipe is not self.transformer or None) is not None


Differences = Callable[[int, tuple[float, ...] | None, Source, tuple[int, ...], int], tuple[list[str], list[str]]]
"""From a generation's number of steps, sigmas, source, latent shape without the batch and first step to notes and
warnings."""
