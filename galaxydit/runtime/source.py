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
        device = torch.device("cpu")
        if not torch.accelerator.is_available():
            return device  # known without the pipeline, which walks all its modules to find it
        weight = next(self.transformer.parameters(), None)
        if weight is not None:
            device = weight.device
        return getattr(self.pipe, "_execution_device", device) or device

    @property
    def scheduler(self) -> Any | None:
        if self.own_scheduler is not None:
            return self.own_scheduler
        return getattr(self.pipe, "scheduler", None)

    @property
    def may_be_running(self) -> bool:
        """Whether the pipeline's own loop is under way; True where the pipeline does not say."""
        if not hasattr(self.pipe, "_current_timestep"):
            return self.pipe is not self.transformer
        return self.pipe._current_timestep is not None


Differences = Callable[[int, tuple[float, ...] | None, Source, tuple[int, ...], int], tuple[list[str], list[str]]]
"""From a generation's number of steps, sigmas, source, latent shape without the batch and first step to notes and
warnings."""
