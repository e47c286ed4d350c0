"""Finished runs without a model, and an environment whose packages are stand-ins for VBench and torch."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from galaxydit.eval.jobs.job import Job, Variant
from galaxydit.eval.jobs.record import VIDEO, to_plain
from galaxydit.eval.jobs.run_job import open_run
from galaxydit.eval.published.vbench import VBENCH
from galaxydit.eval.vbench.environment import Environment, open_environment
from galaxydit.pipelines.runs import Record, Unit
from galaxydit.pipelines.trial_result import TrialResult
from galaxydit.pipelines.video import save_video

STAND_IN = '''
"""Scores a video by the unit that its link names; what it does wrong is said by files beside it."""
import json, os, time
from pathlib import Path

HERE = Path(__file__).parent

class VBench:
    def __init__(self, device, full_info_dir, output_path):
        self.full_info, self.output = full_info_dir, Path(output_path)

    def evaluate(self, videos_path, name, prompt_list=[], dimension_list=None, local=False, mode=""):
        [dimension] = dimension_list
        fault = (HERE / "fault.txt").read_text() if (HERE / "fault.txt").exists() else ""
        if fault == "raises" and dimension == "motion_smoothness":
            raise ModuleNotFoundError("No module named 'clip'")
        if fault == "dies":
            print("Killed by something")
            os._exit(0)
        if fault == "waits":
            (HERE / "process.txt").write_text(str(os.getpid()))
            time.sleep(600)
        files = sorted(os.listdir(videos_path))
        links = {file: os.path.realpath(os.path.join(videos_path, file)) for file in files}
        seen = {
            "files": links, "prompts": prompt_list, "mode": mode, "local": local, "dimension": dimension,
            "process": os.getpid(),
            "full_info": json.loads(Path(self.full_info).read_text()),
            "environment": {key: value for key, value in os.environ.items() if "proxy" in key or "CACHE" in key
                            or "OFFLINE" in key or "ONLY_LOAD" in key},
            "checkpoints": os.listdir(os.path.join(os.environ["TORCH_HOME"], "hub", "checkpoints")),
        }
        with open(HERE / "seen.jsonl", "a") as log:
            log.write(json.dumps(seen) + "\\n")
        values = {file: 0.9 + len(links[file]) % 7 / 100 + sum(map(ord, file)) % 10 / 1000 for file in files}
        if fault == "drops one":
            values.pop(files[0])
        videos = [{"video_path": os.path.join(videos_path, file), "video_results": values[file]} for file in values]
        score = sum(values.values()) / len(values)
        (self.output / f"{name}_eval_results.json").write_text(json.dumps({dimension: [score, videos]}))
'''
TORCH = """
from contextlib import nullcontext as no_grad

class cuda:
    is_available = staticmethod(lambda: False)

def device(name):
    return name
"""
FULL_INFO = [
    {"prompt_en": "a stop sign", "dimension": ["temporal_flickering"]},
    {"prompt_en": "a dog", "dimension": ["object_class", "temporal_flickering"], "auxiliary_info": {"object": "dog"}},
    {"prompt_en": "a dog", "dimension": ["motion_smoothness"]},
]


@pytest.fixture(scope="session")
def fake_folder(tmp_path_factory) -> Path:
    """A virtual environment without pip, with stand-ins for vbench 0.1.5 and torch."""
    folder = tmp_path_factory.mktemp("environments") / "fake"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    packages = next((folder / "lib").glob("python*/site-packages"))
    (packages / "torch.py").write_text(TORCH)
    (packages / "vbench").mkdir()
    (packages / "vbench" / "__init__.py").write_text(STAND_IN)
    (packages / "vbench" / "VBench_full_info.json").write_text(json.dumps(FULL_INFO))
    (packages / "vbench-0.1.5.dist-info").mkdir()
    (packages / "vbench-0.1.5.dist-info" / "METADATA").write_text("Name: vbench\nVersion: 0.1.5\n")
    return folder


@pytest.fixture
def fake_environment(fake_folder) -> Environment:
    environment = open_environment(fake_folder, VBENCH)
    (environment.package / "seen.jsonl").unlink(missing_ok=True)
    return environment


@pytest.fixture
def seen(fake_environment) -> Callable[[], list[dict[str, Any]]]:
    """What the stand-in was given, call by call."""
    return lambda: [json.loads(line) for line in (fake_environment.package / "seen.jsonl").read_text().splitlines()]


@pytest.fixture
def fault(fake_environment):
    """Makes the stand-in do something wrong, until the test is over."""
    file = fake_environment.package / "fault.txt"
    yield file.write_text
    file.unlink(missing_ok=True)


def make_record(unit: Unit) -> Record:
    result = TrialResult(
        frames_sha256="1" * 64,
        shape=(4, 32, 32, 3),
        settings={},
        denoise_seconds=1.0,
        end_to_end_seconds=1.1,
        compute_fraction=1.0,
        device="cpu",
    )
    return Record(unit.id, unit.data, "done", 1, 1.1, "node:1", "2026-01-01T00:00:00Z", result=to_plain(result))


@pytest.fixture
def make_run(tmp_path) -> Callable[..., Path]:
    """Writes a finished lossless run of two variants; `frames` gives the video of a unit, a placeholder without it."""

    def make(
        prompts: tuple[str, ...],
        samples: int = 1,
        frames: Callable[[Unit], np.ndarray] | None = None,
    ) -> Path:
        job = Job(
            model="wan-tiny",
            prompts=prompts,
            samples=samples,
            variants=(Variant("baseline", "baseline"), Variant("fast", "galaxydit", {"speedup": 2.0})),
            video="lossless",
        )
        store, video = open_run(tmp_path / "run", job), tmp_path / "video.mp4"
        for unit in job.units():
            if frames is not None:
                save_video(frames(unit), video, 8, lossless=True)
            store.commit(make_record(unit), {VIDEO: video.read_bytes() if frames is not None else b""})
        return tmp_path / "run"

    return make
