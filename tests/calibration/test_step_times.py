"""What a reused step is expected to take."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from diffusers import WanPipeline

from galaxydit.calibration.step_times import predicted_speedup, time_steps
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.profiles.evidence import Seconds


def test_the_prediction_counts_both_guidance_branches_of_a_reused_step() -> None:
    """A step of two branches with 30 blocks of 10 ms, 50 ms outside the blocks and 20 ms outside the transformer."""
    seconds = Seconds(
        step=2 * (30 * 0.01 + 0.05) + 0.02,
        block=0.01,
        outside_blocks=2 * 0.05,
        outside_transformer=0.02,
        predicted_speedup=(),
        measured_speedup=(),
    )
    reused = 0.02 + 2 * 0.05 / 2
    assert predicted_speedup(seconds, 50, 25) == pytest.approx(50 * 0.72 / (25 * 0.72 + 25 * reused))


def test_seconds_are_told_apart_by_where_they_pass(
    tiny_wan_pipeline: WanPipeline, settings: GenerationSettings, prompts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock of its own: a block takes 1 s, the transformer 5 s outside its blocks, the scheduler 7 s a step."""
    now, transformer, step = [0.0], tiny_wan_pipeline.transformer, tiny_wan_pipeline.scheduler.step

    def passing(seconds: float) -> Callable[..., None]:
        return lambda *_: now.append(now.pop() + seconds)

    def slow_step(*args: Any, **kwargs: Any) -> Any:
        passing(7.0)()
        return step(*args, **kwargs)

    for block in transformer.blocks:
        block.ffn.register_forward_hook(passing(1.0))
    transformer.proj_out.register_forward_hook(passing(5.0))
    monkeypatch.setattr(tiny_wan_pipeline.scheduler, "step", slow_step)
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    seconds = time_steps(tiny_wan_pipeline, prompts[0], settings, 0).seconds
    assert (seconds.block, seconds.outside_blocks, seconds.outside_transformer) == pytest.approx((1.0, 2 * 5.0, 7.0))
    assert seconds.step == pytest.approx(2 * (3 * 1.0 + 5.0) + 7.0)
