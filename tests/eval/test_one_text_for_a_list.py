"""A text or a number alone, where a list of them belongs, is one value and not a list of letters."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from diffusers import WanPipeline

from galaxydit.calibration.calibration import calibrate
from galaxydit.calibration.prompt_files import split_prompts
from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.compare.plan import ComparisonPlan
from galaxydit.eval.demo import run_demo
from galaxydit.eval.jobs.job import Job
from galaxydit.eval.jobs.jobfile import job_of
from galaxydit.eval.latency.latency_settings import LatencySettings
from galaxydit.eval.methods.method_registry import names_of
from galaxydit.eval.metrics import select
from galaxydit.eval.published.vbench import VBENCH
from galaxydit.eval.validate.validation_job import validation_job
from galaxydit.pipelines.settings import GenerationSettings

PROMPT = "a red ball moves left"


def test_a_prompt_alone_is_one_prompt() -> None:
    assert split_prompts(PROMPT, None, verifies=False) == ([PROMPT], [])
    assert split_prompts(np.array([PROMPT]), None, verifies=False) == ([PROMPT], [])
    job = Job(model="wan-tiny", prompts=PROMPT, calibration="a cube", metrics="psnr", seeds=3)  # type: ignore[arg-type]
    assert (job.prompts, job.calibration, job.metrics, job.seeds) == ((PROMPT,), ("a cube",), ("psnr",), (3,))
    assert [unit.data["prompt"] for unit in job.units()] == [PROMPT]
    plan = ComparisonPlan(PROMPT, 0, "a cube", 2.0, tuned=1)  # type: ignore[arg-type]
    assert plan == ComparisonPlan((PROMPT,), (0,), ("a cube",), (2.0,), tuned=1)
    job = validation_job({"model": "wan-tiny"}, PROMPT, "repeated-plain-run")  # type: ignore[arg-type]
    assert job.prompts == (PROMPT,)


def test_a_name_alone_is_one_name() -> None:
    assert names_of("fewer steps") == ["fewer steps"]
    assert [metric.name for metric in select("psnr")] == ["psnr"]
    assert VBENCH.select("color") == (VBENCH.dimensions["color"],)
    assert LatencySettings(methods="plain").methods == ["plain"]  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [b"a ball", 3, None, [PROMPT, 3], [None], {"prompt": PROMPT}, Path("prompts.txt")])
def test_what_is_no_text_and_no_list_of_texts_is_refused(wrong: Any) -> None:
    with pytest.raises(GalaxyDiTError, match=r"prompts=.* is not allowed: expected a text"):
        split_prompts(wrong, None, verifies=False)
    with pytest.raises(GalaxyDiTError, match=r"prompts=.* is not allowed: expected a text"):
        Job(model="wan-tiny", prompts=wrong)


def test_calibrations_and_demos_take_a_prompt_and_a_speedup_alone(
    tiny_wan_pipeline: WanPipeline, tmp_path: Path
) -> None:
    settings = GenerationSettings(height=32, width=32, num_frames=5, steps=9, guidance_scale=3.0)
    for wrong, expected in ((0.5, "speedups=0.5"), ("2", "speedups='2'")):
        with pytest.raises(GalaxyDiTError, match=expected):
            calibrate(tiny_wan_pipeline, PROMPT, resume_dir=tmp_path, settings=settings, speedups=wrong)  # type: ignore
    asked: list[str] = []

    def told(stage: str) -> None:
        asked.append(stage)
        if "prompt 1" in stage:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        run_demo(
            tiny_wan_pipeline, PROMPT, settings, 0, tmp_path / "demo", acceleration={"speedup": 2.0}, on_progress=told
        )
    assert "prompt 1 of 1: plain" in asked


def test_a_negative_prompt_is_one_text() -> None:
    with pytest.raises(GalaxyDiTError, match=r"negative_prompt=.* is not allowed: expected one text"):
        GenerationSettings(negative_prompt=["blurry"])  # type: ignore[arg-type]


def test_texts_of_a_job_file_are_a_list() -> None:
    with pytest.raises(GalaxyDiTError, match=r"prompts.texts='a red ball moves left' is not allowed: expected"):
        job_of({"model": "wan-tiny", "prompts": {"texts": PROMPT}}, Path())
