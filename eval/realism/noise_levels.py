"""Plain sampling at chosen noise levels."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from diffusers import DiffusionPipeline, UniPCMultistepScheduler


class ChosenNoiseLevels(UniPCMultistepScheduler):
    """UniPC that samples at the noise levels in `chosen`, falling, above 0, whatever number of steps is asked for."""

    chosen: Sequence[float] = ()

    def set_timesteps(self, num_inference_steps: int | None = None, device: Any = None, **kwargs: Any) -> None:
        """Set the scheduler's own timesteps, then replace their noise levels."""
        super().set_timesteps(len(self.chosen), device=device, **kwargs)
        self.sigmas = torch.tensor([*self.chosen, 0.0], dtype=torch.float32)
        levels = self.sigmas[:-1] * self.config.num_train_timesteps
        self.timesteps = levels.to(torch.int64).to(device=device)


@contextmanager
def chosen_noise_levels(pipe: DiffusionPipeline, sigmas: Sequence[float]) -> Iterator[None]:
    """Within the context, the pipeline samples at these noise levels; ask for as many steps as there are levels."""
    original = pipe.scheduler
    pipe.scheduler = ChosenNoiseLevels.from_config(original.config)
    pipe.scheduler.chosen = tuple(sigmas)
    try:
        yield
    finally:
        pipe.scheduler = original
