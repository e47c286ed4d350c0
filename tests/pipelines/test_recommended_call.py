"""A pipeline of diffusers takes its authors' settings by one call, and three lines accelerate it."""

import gc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from diffusers import FlowMatchEulerDiscreteScheduler, WanPipeline

import galaxydit
from galaxydit import GalaxyDiTError, Report
from galaxydit.pipelines.published_models import CHECKPOINTS, WAN_21_1_3B, Checkpoint

SMALL = replace(WAN_21_1_3B, height=32, width=32, num_frames=5, steps=12)


@pytest.fixture
def published(tiny_wan_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A pipeline with random weights, as `from_pretrained` gives it, of a model with the settings `SMALL`."""
    monkeypatch.setitem(CHECKPOINTS, "small", Checkpoint(str(tiny_wan_folder), SMALL))
    return WanPipeline.from_pretrained(str(tiny_wan_folder))


def test_three_lines_are_enough(published: Any) -> None:
    reports: list[Report] = []
    settings = {"height": 32, "width": 32, "num_frames": 5, "num_inference_steps": 12}
    galaxydit.accelerate(published, speedup=2, on_report=reports.append)
    gc.collect()  # nobody holds the Acceleration
    published("a red ball", **settings)
    assert [report.reused_steps for report in reports] == [6]


@pytest.mark.parametrize("accelerates_first", [True, False])
def test_one_call_gives_a_pipeline_its_authors_settings(published: Any, accelerates_first: bool) -> None:
    reports: list[Report] = []
    if accelerates_first:
        galaxydit.accelerate(published, speedup=2, on_report=reports.append)
    settings = galaxydit.use_recommended_settings(published)
    if not accelerates_first:
        galaxydit.accelerate(published, speedup=2, on_report=reports.append)
    assert published.scheduler.config["flow_shift"] == SMALL.flow_shift
    assert settings == {
        "height": 32,
        "width": 32,
        "num_frames": 5,
        "num_inference_steps": 12,
        "guidance_scale": SMALL.guidance_scale,
        "negative_prompt": SMALL.negative_prompt,
    }
    scheduler = published.scheduler
    assert galaxydit.use_recommended_settings(published) == settings
    assert published.scheduler is scheduler, "nothing is left to change"
    published("a red ball", **settings)
    assert [report.reused_steps for report in reports] == [6]


def test_a_scheduler_without_a_flow_shift_stays(published: Any) -> None:
    published.scheduler = FlowMatchEulerDiscreteScheduler(shift=3.0)
    assert galaxydit.use_recommended_settings(published)["guidance_scale"] == SMALL.guidance_scale
    assert published.scheduler.config["shift"] == 3.0


def test_a_model_that_is_not_recognised_is_refused_until_it_is_named(tiny_wan_folder: Path) -> None:
    pipe = WanPipeline.from_pretrained(str(tiny_wan_folder))
    with pytest.raises(GalaxyDiTError, match=r"model='wan2.1-t2v-1.3b'"):
        galaxydit.use_recommended_settings(pipe)
    with pytest.raises(GalaxyDiTError, match="mean"):
        galaxydit.use_recommended_settings(pipe, model="wan2.1-t2v-1.3")
    settings = galaxydit.use_recommended_settings(pipe, model="wan2.1-t2v-1.3b")
    assert settings["guidance_scale"] == WAN_21_1_3B.guidance_scale
    assert pipe.scheduler.config["flow_shift"] == WAN_21_1_3B.flow_shift
