"""Predictions give up the slope where it fails, and only there."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from diffusers import WanPipeline
from torch import Tensor

import galaxydit
from galaxydit import FixedSteps, GalaxyDiTConfig, Threshold
from galaxydit.acceleration import Acceleration
from galaxydit.report import Report
from galaxydit.runtime.call import Call
from galaxydit.runtime.engine import Engine
from galaxydit.runtime.generation import Generation
from galaxydit.runtime.reuse import GIVEN_UP, StepReuse
from galaxydit.runtime.window import Window
from galaxydit.runtime.work import Work
from tests.galaxydit.injected_failures import FAILURES, Failure, UnguardedEngine
from tests.galaxydit.test_acceleration import run

EVERY_THIRD = FixedSteps((*range(8), *range(10, 40, 3), 38, 39))
STEPS = 40


class Coinciding:
    """Mixin for `Engine`: every other two noise levels almost coincide, so that slopes are 10 times too large."""

    def _decide_before(self, call: Call, window: Window, generation: Generation) -> Work:
        levels = tuple(1 - (step - step % 2 * 0.99) / (STEPS + 1) for step in range(STEPS))
        generation.clocks[0].sigmas = levels
        call = replace(call, info=replace(call.info, sigma=levels[call.info.step]))
        work: Work = super()._decide_before(call, window, generation)  # type: ignore[misc]
        return work


@pytest.fixture
def tiny_wan_pipeline(tiny_wan_builder: Callable[..., WanPipeline]) -> WanPipeline:
    """With other random weights, to which the failures do harm: to many random models they do not."""
    return tiny_wan_builder(16)


def generate(pipe: WanPipeline, kind: type[Engine], config: GalaxyDiTConfig, **changes: Any) -> tuple[Tensor, Report]:
    with Acceleration(pipe, config, engine=partial(kind)) as acceleration:
        latents = run(pipe, num_inference_steps=STEPS, **changes)
    return latents, acceleration.report


def fail(pipe: WanPipeline, failure: Failure, config: GalaxyDiTConfig, guarded: bool = True) -> tuple[Tensor, Report]:
    with failure.attach(pipe, config, guarded=guarded) as acceleration:
        latents = run(pipe, num_inference_steps=STEPS)
    return latents, acceleration.report


@pytest.mark.parametrize("reuse", ["output", "residual"])
@pytest.mark.parametrize("order", [0, 1])
def test_a_healthy_generation_keeps_every_bit(tiny_wan_pipeline: WanPipeline, reuse: str, order: int) -> None:
    config = GalaxyDiTConfig(EVERY_THIRD, reuse=reuse, order=order)
    guarded, report = generate(tiny_wan_pipeline, Engine, config)
    unguarded, _ = generate(tiny_wan_pipeline, UnguardedEngine, config)
    assert torch.equal(guarded, unguarded)
    assert GIVEN_UP not in report.notes


@pytest.mark.parametrize("reuse", ["output", "residual"])
def test_a_failing_slope_is_given_up_with_a_warning(tiny_wan_pipeline: WanPipeline, reuse: str) -> None:
    plain = run(tiny_wan_pipeline, num_inference_steps=STEPS)
    config = GalaxyDiTConfig(EVERY_THIRD, reuse=reuse)
    failure = Failure("coinciding noise levels", Coinciding)
    with pytest.warns(galaxydit.ExtrapolationWarning, match="of order 1 erred more than 3 times"):
        guarded, report = fail(tiny_wan_pipeline, failure, config)
    unguarded, _ = fail(tiny_wan_pipeline, failure, config, guarded=False)
    repeated, _ = fail(tiny_wan_pipeline, failure, replace(config, order=0), guarded=False)
    assert GIVEN_UP in report.notes
    assert not torch.equal(guarded, unguarded)
    if reuse == "output":
        assert (guarded - plain).norm() < 0.97 * (unguarded - plain).norm()
        assert (guarded - plain).norm() < 1.2 * (repeated - plain).norm()


@pytest.mark.filterwarnings("ignore:galaxydit. predictions of order 1 erred")
@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: failure.name)
def test_an_injected_failure_ends_no_worse_than_order_0(tiny_wan_pipeline: WanPipeline, failure: Failure) -> None:
    plain, config = run(tiny_wan_pipeline, num_inference_steps=STEPS), GalaxyDiTConfig(EVERY_THIRD)
    guarded, _ = fail(tiny_wan_pipeline, failure, config)
    repeated, _ = fail(tiny_wan_pipeline, failure, replace(config, order=0), guarded=False)
    assert (guarded - plain).norm() < 1.2 * (repeated - plain).norm()


def test_a_full_step_moves_numbers_from_the_device_once(
    tiny_wan_pipeline: WanPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved: list[str] = []

    def counted(name: str) -> Callable[..., Any]:
        original = getattr(Tensor, name)

        def count(self: Tensor, *arguments: Any, **keywords: Any) -> Any:
            moved.append(name)
            return original(self, *arguments, **keywords)

        return count

    counts = []
    for kind in (UnguardedEngine, Engine):
        for name in ("tolist", "item", "__float__", "__bool__"):
            monkeypatch.setattr(Tensor, name, counted(name))
        generate(tiny_wan_pipeline, kind, GalaxyDiTConfig(EVERY_THIRD, correction=False))
        counts.append(len(moved))
        moved.clear()
        monkeypatch.undo()
    assert 0 < counts[1] - counts[0] <= len(EVERY_THIRD.steps) - 2


def test_each_sample_of_a_batch_gives_up_its_own_slope(
    tiny_wan_pipeline: WanPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: dict[int, bool] = {}
    original = StepReuse.follows_slope

    def failing(self: StepReuse, work: Work, sample: int, stream: int) -> bool:
        work.history.slope_failures[work.call.branch, 1, 0] = (True,) * 8
        judged[sample] = original(self, work, sample, stream)
        return judged[sample]

    monkeypatch.setattr(StepReuse, "follows_slope", failing)
    noise = torch.randn(2, 16, 2, 4, 4, generator=torch.Generator().manual_seed(1))
    with pytest.warns(galaxydit.ExtrapolationWarning, match="of order 1 erred"):
        generate(tiny_wan_pipeline, Engine, GalaxyDiTConfig(Threshold(0.1)), prompt=["a ball", "a cube"], latents=noise)
    assert judged == {0: True, 1: False}
