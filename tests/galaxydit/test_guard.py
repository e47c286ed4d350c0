"""The guard in whole generations: it changes nothing until predictions do harm, and then it does what order 0 does."""

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
from galaxydit.policies.safeguard import GuardAction
from galaxydit.runtime.call import Call
from galaxydit.runtime.engine import Engine
from galaxydit.runtime.full_step_guard import FullStepGuard
from tests.galaxydit.conftest import TinyPipeline
from tests.galaxydit.test_acceleration import run

EVERY_THIRD = FixedSteps((*range(6), *range(8, 40, 3), 38, 39))
STEPS = 40


class Unguarded(Engine):
    def _make_guard(self) -> FullStepGuard:
        guard = super()._make_guard()
        guard.acts = False
        return guard


class Failing(Engine):
    """Believes noise levels of which every other two almost coincide, so that slopes are 10 times too large."""

    def _locate(self, *arguments: Any) -> Call | None:
        call = super()._locate(*arguments)
        assert call is not None
        levels = tuple(1 - (step - step % 2 * 0.99) / (STEPS + 1) for step in range(STEPS))
        call.generation.sigmas, call.info = levels, replace(call.info, sigma=levels[call.info.step])
        return call


class FailingUnguarded(Failing, Unguarded):
    pass


def generate(pipe: WanPipeline, kind: type[Engine], config: GalaxyDiTConfig, **changes: Any) -> tuple[Tensor, Any]:
    with Acceleration(pipe, config, engine=partial(kind)) as acceleration:
        latents = run(pipe, num_inference_steps=STEPS, **changes)
    return latents, acceleration.report


@pytest.mark.parametrize("reuse", ["output", "residual"])
@pytest.mark.parametrize("order", [0, 1])
def test_a_guard_that_does_not_act_changes_no_bit(tiny_wan_pipeline: WanPipeline, reuse: str, order: int) -> None:
    config = GalaxyDiTConfig(EVERY_THIRD, reuse=reuse, order=order)
    guarded, report = generate(tiny_wan_pipeline, Engine, config)
    unguarded, _ = generate(tiny_wan_pipeline, Unguarded, config)
    assert torch.equal(guarded, unguarded)
    assert [record.step for record in report.guard] == list(EVERY_THIRD.steps[1:])
    assert not any(record.actions for record in report.guard)
    assert "times as much as the correction assumes" in str(report)


def test_a_failing_slope_is_dropped_and_the_video_is_as_good_as_at_order_0(tiny_wan_pipeline: WanPipeline) -> None:
    plain = run(tiny_wan_pipeline, num_inference_steps=STEPS)
    config = GalaxyDiTConfig(EVERY_THIRD)
    guarded, report = generate(tiny_wan_pipeline, Failing, config)
    unguarded, _ = generate(tiny_wan_pipeline, FailingUnguarded, config)
    repeated, _ = generate(tiny_wan_pipeline, FailingUnguarded, replace(config, order=0))
    actions = [action for record in report.guard for action in record.actions]
    assert actions[:2] == [GuardAction.SLOPE_HALVED, GuardAction.SLOPE_DROPPED]
    assert "Guard: order 0 from step" in str(report)
    assert report.to_dict()["guard"][-1]["slope"] == 0.0
    errors = [float((latents - plain).norm()) for latents in (guarded, unguarded, repeated)]
    assert errors[0] < 0.85 * errors[1]
    assert errors[0] == pytest.approx(errors[2], rel=0.05)


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
    for kind in (Unguarded, Engine):
        for name in ("tolist", "item", "__float__", "__bool__"):
            monkeypatch.setattr(Tensor, name, counted(name))
        if kind is Unguarded:
            monkeypatch.setattr(FullStepGuard, "observe", lambda *_: None)
        generate(tiny_wan_pipeline, kind, GalaxyDiTConfig(EVERY_THIRD, correction=False))
        counts.append(len(moved))
        moved.clear()
        monkeypatch.undo()
    # The response of the scheduler is measured once for each generation, on the CPU.
    assert counts[1] - counts[0] <= len(EVERY_THIRD.steps)


@pytest.mark.parametrize("name", ["LTX", "CogVideoX DDIM", "HunyuanVideo"])
def test_every_kind_of_guidance_is_measured(tiny_pipeline: Callable[[str], TinyPipeline], name: str) -> None:
    tiny = tiny_pipeline(name)
    with Acceleration(tiny.pipe, GalaxyDiTConfig(FixedSteps((0, 1, 2, 3, 5, 7, 9, 11)))) as acceleration:
        tiny.run()
    assert [record.step for record in acceleration.report.guard] == [1, 2, 3, 5, 7, 9, 11]
    assert all(record.error > 0 for record in acceleration.report.guard)


def test_samples_of_a_batch_are_measured_as_if_they_were_alone(tiny_wan_pipeline: WanPipeline) -> None:
    prompts = ["a red ball", "two blue cubes before a mountain"]
    config = GalaxyDiTConfig(Threshold(0.1))
    noise = torch.randn(2, 16, 2, 4, 4, generator=torch.Generator().manual_seed(1))
    _, together = generate(tiny_wan_pipeline, Engine, config, prompt=prompts, latents=noise)
    assert {record.sample for record in together.guard} == {0, 1}
    for place, prompt in enumerate(prompts):
        _, alone = generate(tiny_wan_pipeline, Engine, config, prompt=prompt, latents=noise[place : place + 1])
        of_sample = [record for record in together.guard if record.sample == place]
        assert [record.step for record in of_sample] == [record.step for record in alone.guard]
        for one, other in zip(of_sample, alone.guard, strict=True):
            assert one.error == pytest.approx(other.error, rel=1e-2, abs=1e-9)


def test_nothing_is_measured_where_nothing_is_reused(tiny_wan_pipeline: WanPipeline) -> None:
    with pytest.warns(galaxydit.NoEffectWarning), galaxydit.accelerate(tiny_wan_pipeline, threshold=0) as acceleration:
        run(tiny_wan_pipeline)
    assert acceleration.report.guard == ()
