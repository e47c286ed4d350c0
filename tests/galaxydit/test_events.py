"""Whatever happened before, a complete generation equals a fresh one, bit for bit."""

import gc
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import psutil
import pytest
import torch
from diffusers.models.cache_utils import CacheMixin
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import galaxydit
from galaxydit import FixedSteps, GalaxyDiTConfig, Threshold

pytestmark = [
    pytest.mark.filterwarnings("ignore::galaxydit.FullComputeWarning"),
]


class Block(nn.Module):
    def forward(self, hidden_states: Tensor, text: Tensor, temb: Tensor, rope: None = None) -> Tensor:
        return hidden_states + 0.3 * torch.sin(3.0 * hidden_states + text.mean() + temb)


class WanTransformer3DModel(nn.Module, CacheMixin):
    """Has the calling convention of the real one, and a formula instead of layers. May be told to fail in a call."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.calls_until_failure: int | None = None

    def forward(
        self, hidden_states: Tensor, timestep: Tensor, encoder_hidden_states: Tensor, return_dict: bool = True
    ) -> tuple[Tensor]:
        if self.calls_until_failure is not None:
            self.calls_until_failure -= 1
        for block in self.blocks:
            hidden_states = block(hidden_states, encoder_hidden_states, timestep.max() / 1000)
            if self.calls_until_failure == 0:
                raise MemoryError
        return (hidden_states - encoder_hidden_states.mean(),)


class Scheduler:
    """Searched for the timestep; `Counting` has a step counter besides."""

    def set_timesteps(self, steps: int) -> None:
        self.timesteps = torch.linspace(1000, 1000 / steps, steps)
        self.sigmas = torch.linspace(1, 0, steps + 1)

    def step(self, index: int, latents: Tensor, prediction: Tensor) -> Tensor:
        return latents - prediction / len(self.timesteps)


class Counting(Scheduler):
    def set_timesteps(self, steps: int) -> None:
        super().set_timesteps(steps)
        self.step_index: int | None = None

    def step(self, index: int, latents: Tensor, prediction: Tensor) -> Tensor:
        self.step_index = index + 1
        return super().step(index, latents, prediction)


@dataclass(frozen=True)
class Event:
    """A generation: complete, or ended after some calls by a failure inside the transformer or by its caller."""

    steps: int = 14
    frames: int = 2
    batch: int = 1
    dtype: torch.dtype = torch.float32
    guided: bool = True
    named: bool = True
    text: int = 0
    ends_after: int | None = None
    fails_inside: bool = False
    says_goodbye: bool = True


EVENTS = st.builds(
    Event,
    steps=st.sampled_from([9, 14, 15]),
    frames=st.sampled_from([2, 3]),
    batch=st.sampled_from([1, 2]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
    guided=st.booleans(),
    named=st.booleans(),
    text=st.sampled_from([0, 1]),
    ends_after=st.one_of(st.none(), st.integers(1, 27)),
    fails_inside=st.booleans(),
    says_goodbye=st.booleans(),
)
TEXTS = [[torch.full((1, 3, 4), 0.2 * index + 0.1 * branch) for branch in (1, 0)] for index in (0, 1)]
CONFIGS: dict[str, dict[str, Any]] = {
    "output": {"config": GalaxyDiTConfig(Threshold(0.3), warmup=0.0)},
    "residual": {"config": GalaxyDiTConfig(Threshold(0.3), warmup=0.0, reuse="residual", proxy="block_input")},
    "not aligned": {"config": GalaxyDiTConfig(Threshold(0.3), warmup=0.0, guidance_alignment=False)},
    "schedule": {"config": GalaxyDiTConfig(FixedSteps((0, 3, 4, 8)))},
    "speedup": {"speedup": 2.0},
}


def generate(transformer: WanTransformer3DModel, scheduler: Scheduler, event: Event, seed: int) -> Tensor:
    """Denoise as pipelines do; raises MemoryError or KeyboardInterrupt where the event ends early."""
    scheduler.set_timesteps(event.steps)
    transformer.calls_until_failure = event.ends_after if event.fails_inside else None
    generator = torch.Generator().manual_seed(seed)
    latents = torch.randn(event.batch, 4, event.frames, 2, 2, generator=generator).to(event.dtype)
    names = ("cond", "uncond")[: 2 if event.guided else 1]
    calls = 0
    for index, timestep in enumerate(scheduler.timesteps):
        predictions = []
        for name, text in zip(names, TEXTS[event.text], strict=False):
            with transformer.cache_context(name) if event.named else nullcontext():
                predictions.append(transformer(latents, timestep.expand(event.batch), text, return_dict=False)[0])
            calls += 1
            if calls == event.ends_after:
                raise KeyboardInterrupt
        guided = predictions[-1] + 2.0 * (predictions[0] - predictions[-1])
        latents = scheduler.step(index, latents, guided)
    if event.says_goodbye:
        transformer._reset_stateful_cache()
    return latents


@pytest.mark.parametrize("make_scheduler", [Scheduler, Counting])
@pytest.mark.parametrize("name", CONFIGS)
@given(events=st.lists(EVENTS, max_size=4), last=EVENTS)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
def test_a_complete_generation_equals_a_fresh_one(
    name: str, make_scheduler: Callable[[], Any], events: list[Event], last: Event
) -> None:
    last = Event(**(vars(last) | {"ends_after": None}))
    transformer, scheduler = WanTransformer3DModel(), make_scheduler()
    with torch.no_grad():
        with galaxydit.accelerate(transformer, scheduler=scheduler, **CONFIGS[name]) as acceleration:
            for seed, event in enumerate(events):
                with suppress(MemoryError, KeyboardInterrupt):
                    generate(transformer, scheduler, event, seed)
            after_events = generate(transformer, scheduler, last, seed=9)
        scheduler = make_scheduler()
        with galaxydit.accelerate(transformer, scheduler=scheduler, **CONFIGS[name]) as fresh:
            expected = generate(transformer, scheduler, last, seed=9)
    assert torch.equal(after_events, expected)
    assert acceleration.report.calls == fresh.report.calls
    assert len(acceleration.reports) == len(events) + 1
    if name == "output" and last.steps > 9:
        assert acceleration.report.reused_steps > 0


def test_later_generations_leave_no_more_behind_than_the_first() -> None:
    """Every seventh ends early, every eleventh has another number of steps, and prompts alternate."""
    transformer, scheduler = WanTransformer3DModel(), Counting()

    def run(first: int, last: int) -> tuple[int, int, int]:
        """Objects, tensors and bytes of this process afterwards."""
        for seed in range(first, last):
            event = Event(steps=10 if seed % 11 else 9, text=seed % 2, ends_after=9 if seed % 7 == 0 else None)
            with torch.no_grad(), suppress(MemoryError, KeyboardInterrupt):
                generate(transformer, scheduler, event, seed)
        gc.collect()
        objects = gc.get_objects()
        return len(objects), sum(type(one) is Tensor for one in objects), psutil.Process().memory_info().rss

    with galaxydit.accelerate(transformer, scheduler=scheduler, speedup=2.0) as acceleration:
        before = run(0, 33)
        after = run(33, 154)  # the last of which ends as usual
        assert len(acceleration.reports) == 17, "the last 16, and the one that ended just now"
        assert acceleration._session.current is not None
        assert not acceleration._session.current.histories
    objects, tensors, memory = (late - early for early, late in zip(before, after, strict=True))
    assert tensors == 0
    assert objects < 100
    assert memory < 8 * 2**20
