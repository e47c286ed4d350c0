"""A plain video that is made anyway is recorded, and takes the place of the plain video of a calibration."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command_line import exit_code
from diffusers import WanPipeline

from galaxydit.calibration.budget import Budget
from galaxydit.calibration.calibration import calibrate
from galaxydit.calibration.generation_observer import observed, read_recorded
from galaxydit.commands.calibrate_command import KEPT_VIDEOS
from galaxydit.errors import GalaxyDiTError
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.written_by import RECORDING, write_own_json
from galaxydit.profiles.profile_registry import load_profile

SIZE = ("--height", "32", "--width", "32", "--frames", "5", "--steps", "10", "--guidance", "3", "--dtype", "bfloat16")


@pytest.fixture(autouse=True)
def _keep_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line takes SIGTERM over, which is the test run's."""
    monkeypatch.setattr("signal.signal", lambda *_: None)


def test_a_video_is_the_same_while_it_is_recorded(tiny_wan_pipeline: WanPipeline, settings: GenerationSettings) -> None:
    tiny_wan_pipeline.transformer.to(torch.bfloat16)
    plain = generate(tiny_wan_pipeline, "a red ball", settings, 1)
    with observed(tiny_wan_pipeline):
        again = generate(tiny_wan_pipeline, "a red ball", settings, 1)
    np.testing.assert_array_equal(plain.frames, again.frames)


def test_a_calibration_takes_a_recorded_video_in_place_of_its_own(
    tiny_wan_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    model, record = ("--model", tiny_wan_folder, *SIZE), tmp_path / "film.json"
    made = ("--prompt", "a red ball", "--out", tmp_path / "a.mp4", "--no-accelerate", "--record", record)
    assert exit_code("generate", *model, *made) == 0
    assert str(record) in capsys.readouterr().out
    own = ("--out", tmp_path / "p.json", "--budget", "0.1", "--save-videos", tmp_path / "videos")
    assert exit_code("calibrate", *model, *own, "--recorded", record) == 0
    profile = load_profile(tmp_path / "p.json")
    assert profile.evidence.recorded.excess_db is not None, "the recordings are checked"
    names = {path.stem.rpartition("-")[0] for path in (tmp_path / "p.parts" / "units").iterdir()}
    assert names == {"timing", "sample-0000"}
    (sample,) = (tmp_path / "p.parts" / "units").glob("sample-*")
    assert json.loads(sample.read_text())["data"]["prompt"] == "a red ball"
    other = [*own[2:4], "--guidance", "4", "--recorded", record]
    assert exit_code("calibrate", *model, *other, "--out", tmp_path / "q.json") == 2
    assert "of another settings" in " ".join(capsys.readouterr().err.split())


def test_a_run_records_its_first_plain_video_and_keeps_no_seconds_of_it(
    tiny_wan_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    job, out, record = tmp_path / "job.toml", tmp_path / "run", tmp_path / "film.json"
    job.write_text(
        f'model = "{tiny_wan_folder}"\nsteps = 10\nheight = 32\nwidth = 32\nframes = 5\nmetrics = ["psnr"]\n'
        '[prompts]\ntexts = ["a", "b"]\n[variants.fast]\nmethod = "galaxydit"\n'
    )
    assert exit_code("eval", "run", job, "--out", out, "--record", record) == 0
    assert json.loads(record.read_text())["recording"]["prompt"] == "a"
    results = {path.stem[:20]: json.loads(path.read_text()) for path in (out / "units").iterdir()}
    plain = {
        one["data"]["prompt"]: one["result"]
        for one in results.values()
        if one["data"]["variant"]["method"] == "baseline"
    }
    assert plain["a"]["denoise_seconds"] is None
    assert plain["b"]["denoise_seconds"] > 0
    fast = [one["result"] for one in results.values() if one["data"]["variant"]["name"] == "fast"]
    assert sorted(row["plain_denoise_seconds"] is None for row in fast) == [False, True]
    record.unlink()
    assert exit_code("eval", "run", job, "--out", out, "--record", record) == 0
    assert "no plain video was made" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--record", "a.json"), "needs all steps"),
        (("--no-accelerate", "--record", "a.txt"), "--record"),
        (("--no-accelerate", "--record", "a.json", "--ray"), "leave out --ray"),
    ],
)
def test_what_cannot_be_recorded_is_refused(arguments: Any, message: str, capsys: pytest.CaptureFixture) -> None:
    assert exit_code("generate", "--model", "wan-tiny", "--prompt", "x", "--out", "a.mp4", *arguments) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_a_recording_that_was_changed_on_disk_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "film.json"
    write_own_json(path, RECORDING, {"conditions": {}, "recording": {"sigmas": [0.75]}})
    path.write_text(path.read_text().replace("0.75", "0.71"))
    with pytest.raises(GalaxyDiTError, match="its digest does not belong to its content"):
        read_recorded(path, {})


def test_another_file_is_refused(
    tiny_wan_pipeline: WanPipeline, settings: GenerationSettings, prompts: list[str], tmp_path: Path
) -> None:
    for text in ("", "{}", "[" * 100_000):
        (tmp_path / "film.json").write_text(text)
        with pytest.raises(GalaxyDiTError, match=r"recorded=.*a file of --record"):
            calibrate(
                tiny_wan_pipeline, prompts, resume_dir=tmp_path, settings=settings, recorded=tmp_path / "film.json"
            )


def test_the_videos_of_a_calibration_are_kept(
    tiny_wan_pipeline: WanPipeline, settings: GenerationSettings, prompts: list[str], tmp_path: Path
) -> None:
    options = {"settings": settings, "speedups": (2.0,), "save_videos": tmp_path / "videos"}
    calibrate(tiny_wan_pipeline, prompts, resume_dir=tmp_path / "parts", budget=Budget((1, 1), True, 0, 1), **options)
    names = sorted(path.name for path in (tmp_path / "videos").iterdir())
    assert names == sorted(path.name for path in (tmp_path / "videos").glob(KEPT_VIDEOS)), "the command checks these"
    assert names[:2] == ["seed-0-plain.mp4", "seed-10000-plain.mp4"]
    assert names[2].startswith("seed-10000-schedule-2x-order-1")
