"""The shipped profile on the embedded model."""

import pytest
import torch
from diffusers import WanPipeline

import galaxydit
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.loading import load_pipeline
from galaxydit.pipelines.published_models import WAN_TINY
from galaxydit.pipelines.wan_tiny.world import draw_prompts
from galaxydit.profiles.profile_registry import find_profile


@pytest.fixture(scope="module")
def wan_tiny() -> WanPipeline:
    pipe = load_pipeline("wan-tiny", dtype=torch.float32)  # bfloat16 takes five times as long on CPUs without AMX
    pipe.set_progress_bar_config(disable=True)
    return pipe


def test_the_shipped_profile_is_found_and_measured(wan_tiny: WanPipeline) -> None:
    profile, why = find_profile(wan_tiny.transformer)
    assert why == ""
    assert profile.name == "wan-tiny"
    assert profile.conditions.samples == 16
    assert all(target.psnr_db > 20 for target in profile.evidence.verifications if target.speedup <= 3)


@pytest.mark.parametrize("speedup", [2.0, 3.0])
def test_speedups_land_within_5_percent_on_unseen_prompts(wan_tiny: WanPipeline, speedup: float) -> None:
    for seed, prompt in enumerate(draw_prompts(1, 4321)):
        with (
            galaxydit.accelerate(wan_tiny, speedup=speedup) as acceleration,
            pytest.warns(galaxydit.ProfileWarning, match="was measured in bfloat16") as warned,
        ):
            generate(wan_tiny, prompt, WAN_TINY, seed, decode=False)
        report = acceleration.report
        assert abs(report.compute_fraction * speedup - 1) <= 0.05
        assert len(report.notes) == len(warned) == 1


def test_other_steps_and_shifts_keep_the_budget_with_a_remark(wan_tiny: WanPipeline) -> None:
    from dataclasses import replace

    prompt = draw_prompts(1, 4321)[0]
    for change in ({"steps": 30}, {"steps": 30, "flow_shift": 3.0}):
        with (
            galaxydit.accelerate(wan_tiny, speedup=2.0) as acceleration,
            pytest.warns(galaxydit.ProfileWarning, match=r"keep their places among\s+all steps"),
        ):
            generate(wan_tiny, prompt, replace(WAN_TINY, **change), 0, decode=False)
        assert abs(acceleration.report.compute_fraction * 2 - 1) <= 0.05
