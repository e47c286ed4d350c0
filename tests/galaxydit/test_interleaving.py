"""Windows on every family's transformer: those with names are denoised as if alone, others are computed in full."""

import copy
from contextlib import nullcontext
from typing import Any

import diffusers
import pytest
import torch
from diffusers import FlowMatchEulerDiscreteScheduler
from diffusers.models.cache_utils import CacheMixin
from torch import Tensor, nn

import galaxydit
from tests.galaxydit.test_all_families import OFTEN, REUSED, TINY, Tiny, move, noise, predict, texts_of

STEPS = 9


class OfWindow:
    """A transformer that is called in the cache contexts of one window, or outside all contexts."""

    def __init__(self, transformer: nn.Module, window: str | None) -> None:
        self.transformer = transformer
        self.window = window

    def __call__(self, **arguments: Any) -> Any:
        return self.transformer(**arguments)

    def cache_context(self, name: str) -> Any:
        if self.window is None:
            return nullcontext()
        return self.transformer.cache_context(f"{self.window}/{name}")


@torch.no_grad()
def denoise_windows(callers: list[Any], tiny: Tiny, scheduler: Any, windows: tuple[int, ...]) -> list[Tensor]:
    """Latents that do not overlap, each called by its own caller and stepped by a copy of the scheduler."""
    own = [copy.deepcopy(scheduler) for _ in windows]
    for one in own:
        one.set_timesteps(STEPS)
    latents, texts = [noise(tiny.latents, 10 * window) for window in windows], texts_of(tiny)
    for index, timestep in enumerate(own[0].timesteps):
        predicted = []
        for caller, one in zip(callers, latents, strict=True):
            predicted.append(predict(caller, tiny, one, timestep, texts))
        moved = zip(latents, predicted, own, strict=True)
        latents = [move(one, parts, timestep, stepping, index) for one, parts, stepping in moved]
    return [torch.cat([part.flatten() for part in one.values()]) for one in latents]


@pytest.mark.parametrize("name", [name for name in TINY if issubclass(getattr(diffusers, name), CacheMixin)])
def test_each_named_window_is_denoised_as_if_it_were_alone(name: str) -> None:
    tiny = TINY[name]
    transformer, scheduler = tiny.build(), FlowMatchEulerDiscreteScheduler(shift=3.0)

    def run(*windows: int) -> list[Tensor]:
        callers = [OfWindow(transformer, f"window {window}") for window in windows]
        with galaxydit.accelerate(transformer, config=OFTEN, scheduler=scheduler) as acceleration:
            latents = denoise_windows(callers, tiny, scheduler, windows)
        assert {call.step for call in acceleration.report.calls if call.reused} == {*REUSED}
        assert sum(call.reused for call in acceleration.report.calls) * STEPS == len(acceleration.report.calls) * 4
        return latents

    alone = [run(window)[0] for window in range(2)]
    assert all(map(torch.equal, run(0, 1), alone))


UNNAMED = [*((name, "none") for name in TINY), ("WanTransformer3DModel", "of branches")]
UNNAMED += [("LTXVideoTransformer3DModel", "of branches"), ("HunyuanVideoTransformer3DModel", "of branches")]


@pytest.mark.parametrize(("name", "contexts"), UNNAMED)
def test_windows_without_a_name_are_computed_in_full_with_a_warning(name: str, contexts: str) -> None:
    tiny, windows = TINY[name], (0, 1)
    transformer, scheduler = tiny.build(), FlowMatchEulerDiscreteScheduler(shift=3.0)
    caller = transformer if contexts == "of branches" else OfWindow(transformer, None)
    plain = denoise_windows([caller] * 2, tiny, scheduler, windows)
    warned = pytest.warns(galaxydit.FullComputeWarning, match="computed in full|nothing before it is reused")
    with galaxydit.accelerate(transformer, config=OFTEN, scheduler=scheduler), warned:
        latents = denoise_windows([caller] * 2, tiny, scheduler, windows)
    assert all(map(torch.equal, latents, plain))
