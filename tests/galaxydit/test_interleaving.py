"""Two or three windows a step on every family's transformer: each is denoised as if it were alone."""

import copy
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from diffusers import FlowMatchEulerDiscreteScheduler
from torch import Tensor, nn

import galaxydit
from tests.galaxydit.test_all_families import OFTEN, TINY, Tiny, move, noise, predict, texts_of

STEPS = 12


class WithoutContexts:
    """A transformer that is called outside diffusers' cache contexts."""

    def __init__(self, transformer: nn.Module) -> None:
        self.transformer = transformer

    def __call__(self, **arguments: Any) -> Any:
        return self.transformer(**arguments)

    def cache_context(self, name: str) -> Any:
        return nullcontext()


@torch.no_grad()
def denoise_windows(transformer: Any, tiny: Tiny, scheduler: Any, windows: tuple[int, ...]) -> list[Tensor]:
    """Latents that do not overlap, stepped by schedulers of their own; `scheduler` counts the steps for the plugin."""
    own = [copy.deepcopy(scheduler) for _ in windows]
    for one in (scheduler, *own):
        one.set_timesteps(STEPS)
    latents, texts = [noise(tiny.latents, 10 * window) for window in windows], texts_of(tiny)
    for index, timestep in enumerate(scheduler.timesteps):
        predicted = [predict(transformer, tiny, one, timestep, texts) for one in latents]
        latents = [move(*parts, timestep, one, index) for *parts, one in zip(latents, predicted, own, strict=True)]
        scheduler.step(predicted[0][0], timestep, torch.zeros_like(predicted[0][0]))
    return [torch.cat([part.flatten() for part in one.values()]) for one in latents]


@pytest.mark.parametrize("contexts", ["of branches", "none"])
@pytest.mark.parametrize("name", TINY)
def test_each_window_is_denoised_as_if_it_were_alone(name: str, contexts: str) -> None:
    tiny = TINY[name]
    transformer, scheduler = tiny.build(), FlowMatchEulerDiscreteScheduler(shift=3.0)
    caller = transformer if contexts == "of branches" else WithoutContexts(transformer)

    def run(*windows: int) -> list[Tensor]:
        with galaxydit.accelerate(transformer, config=OFTEN, scheduler=scheduler) as acceleration:
            latents = denoise_windows(caller, tiny, scheduler, windows)
        assert sum(call.reused for call in acceleration.report.calls) == len(acceleration.report.calls) // 2
        return latents

    alone = [run(window)[0] for window in range(3)]
    assert all(map(torch.equal, run(0, 1, 2), alone))
