"""Demos and jobs of modular pipelines."""

from pathlib import Path
from typing import Any

import pytest
import torch

from galaxydit.eval.demo import run_demo
from galaxydit.eval.jobs.jobfile import read_job
from galaxydit.eval.jobs.run_job import open_run, run_job
from galaxydit.eval.report.read_run import read_run
from galaxydit.pipelines.loading import load_pipeline
from galaxydit.pipelines.settings import GenerationSettings

JOB = """
model = "{model}"
dtype = "float32"
steps = 12
height = 32
width = 32
frames = 5
metrics = ["psnr"]
prompts = {{ texts = ["a red ball"] }}
[variants.galaxydit]
speedup = 2.0
"""


def test_a_demo_takes_a_modular_pipeline(tiny_modular_folder: Path, tmp_path: Path) -> None:
    pipe = load_pipeline(tiny_modular_folder, dtype=torch.float32, device="cpu")
    settings = GenerationSettings(32, 32, 5, steps=10, fps=8.0)
    options: dict[str, Any] = {"acceleration": {"speedup": 2.0}, "on_progress": print}
    result = run_demo(pipe, ["a red ball"], settings, 0, tmp_path / "demo", **options)
    assert result.reports[0].compute_fraction == pytest.approx(0.5)
    assert (tmp_path / "demo" / "side-by-side.mp4").is_file()


def test_a_job_takes_a_modular_pipeline(tiny_modular_folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(JOB.format(model=tiny_modular_folder))
    job = read_job(path)
    outcome = run_job(job, open_run(tmp_path / "run", job))
    assert (outcome.done, outcome.failed) == (2, 0)
    records = {record.variant: record for record in read_run(tmp_path / "run").records}
    assert records["galaxydit"].metrics["psnr"] > 20
