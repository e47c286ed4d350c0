import hashlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from galaxydit.eval.jobs.job import Job, Variant
from galaxydit.eval.jobs.maker import VideoMaker
from galaxydit.eval.jobs.run_job import open_run
from galaxydit.pipelines.generate import GeneratedVideo
from galaxydit.pipelines.runs import Unit
from galaxydit.pipelines.settings import GenerationSettings

JOB = """
model = "tiny-wan"
dtype = "float32"
steps = 10
guidance = 3.0
height = 32
width = 32
frames = 5
fps = 8
metrics = ["psnr", "temporal_flickering"]

[prompts]
texts = ["a red ball moves left over a plain background", "a blue square orbits over a dotted background"]

[variants.galaxydit]
threshold = 3.0

[variants.half]
method = "fewer-steps"
steps = 5
"""


@pytest.fixture
def job_file(tiny_wan_folder: Path) -> Path:
    """Six units on a model with random weights."""
    path = tiny_wan_folder.parent / "job.toml"
    path.write_text(JOB)
    return path


def invented_video(maker: VideoMaker, unit: Unit) -> GeneratedVideo:
    """Noise that depends on the unit alone: a generation without a model."""
    prompt, seed, settings = unit.data["prompt"], unit.data["seed"], maker.settings
    digest = hashlib.sha256(f"{unit.data['variant']['name']} {prompt} {seed}".encode()).digest()
    frames = np.random.default_rng(int.from_bytes(digest[:8], "big")).random((3, 16, 16, 3), dtype=np.float32)
    return GeneratedVideo(prompt, seed, settings, frames, torch.zeros(1), 2.0, 1.0, operations=1.0)


@pytest.fixture
def invented_job() -> Job:
    return Job(
        model="invented",
        prompts=("a cat",),
        variants=(Variant("baseline", "baseline"), Variant("fast", "galaxydit")),
        metrics=("psnr",),
    )


@pytest.fixture
def invented_maker(monkeypatch: pytest.MonkeyPatch) -> Callable[..., VideoMaker]:
    """Opens a run and returns a maker whose videos are invented, so that a unit takes milliseconds."""
    monkeypatch.setattr(VideoMaker, "_generate", invented_video)

    def build(root: Path, job: Job) -> VideoMaker:
        made = VideoMaker(job, open_run(root, job))
        made.pipe, made.settings = SimpleNamespace(_execution_device=torch.device("cpu")), GenerationSettings(fps=8.0)
        monkeypatch.setattr(made, "prepare", lambda _: None)
        return made

    return build
