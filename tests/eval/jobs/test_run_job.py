"""Whole jobs on a model with random weights."""

import hashlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer
from command_line import exit_code
from diffusers import WanPipeline
from typer.testing import CliRunner

from galaxydit.commands.grouping import RayCommand, grouped
from galaxydit.commands.jobs import JobOptions, show_plan
from galaxydit.commands.options import RayOptions
from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.jobs import maker
from galaxydit.eval.jobs.job import Job
from galaxydit.eval.jobs.jobfile import read_job
from galaxydit.eval.jobs.record import VideoRecord
from galaxydit.eval.jobs.run_job import KIND, load_run, open_run, run_job, withdraw
from galaxydit.eval.metrics import PSNR
from galaxydit.eval.report.read_run import read_run
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.loading import load_pipeline
from galaxydit.pipelines.runs import Outcome, Unit, new_record
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.video import hash_frames, load_video, to_uint8

pytestmark = pytest.mark.filterwarnings("ignore::galaxydit.NoEffectWarning", "ignore::galaxydit.FullComputeWarning")


def run(path: Path, out: Path) -> dict[tuple[int, str], VideoRecord]:
    """The records of a job by prompt and variant."""
    job = read_job(path)
    run_job(job, open_run(out, job))
    return {(record.prompt_index, record.variant): record for record in read_run(out).records}


@pytest.fixture(autouse=True)
def _keep_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line takes SIGTERM over, which is the test run's."""
    monkeypatch.setattr("signal.signal", lambda *_: None)


def test_every_unit_is_the_pipelines_own_video_measured_on_decoded_arrays(job_file: Path, tmp_path: Path):
    job_file.write_text(job_file.read_text().replace("fps = 8", 'fps = 8\nvideo = "lossless"'))
    out = tmp_path / "run"
    records = run(job_file, out)
    assert len(records) == 6
    assert all(record.is_done for record in records.values())

    pipe = load_pipeline(job_file.parent / "tiny-wan", dtype=torch.float32)
    pipe.set_progress_bar_config(disable=True)
    settings = GenerationSettings(32, 32, 5, steps=10, guidance_scale=3.0, fps=8.0)
    job = read_job(job_file)
    plain = generate(pipe, job.prompts[1], settings, seed=1).frames
    fewer = generate(pipe, job.prompts[1], GenerationSettings(**{**vars(settings), "steps": 5}), seed=1).frames
    baseline, half, fast = (records[1, name] for name in ("baseline", "half", "galaxydit"))
    assert baseline.frames_sha256 == hash_frames(plain)
    assert half.frames_sha256 == hash_frames(fewer)
    assert half.metrics["psnr"] == PSNR(fewer, plain)
    assert set(baseline.metrics) == {"temporal_flickering"}
    assert "baseline" in baseline.skipped["psnr"]
    assert (baseline.compute_fraction, half.compute_fraction) == (1.0, 0.5)
    assert fast.compute_fraction == fast.report["compute_fraction"] < 1
    assert half.settings["steps"] == 5
    assert 0 < half.denoise_seconds < half.end_to_end_seconds
    np.testing.assert_array_equal(load_video(out / half.video), to_uint8(fewer))
    assert hashlib.sha256((out / half.video).read_bytes()).hexdigest() == half.video_sha256


def test_every_variant_starts_from_the_same_noise(job_file: Path, tmp_path: Path):
    """Reusing nothing, or taking all the steps, is the baseline bit for bit."""
    text = job_file.read_text().replace("threshold = 3.0", "threshold = 0.0").replace("steps = 5", "steps = 10")
    job_file.write_text(text)
    records = run(job_file, tmp_path / "run")
    for prompt in (0, 1):
        assert len({records[prompt, name].frames_sha256 for name in ("baseline", "galaxydit", "half")}) == 1
    assert records[0, "baseline"].frames_sha256 != records[1, "baseline"].frames_sha256
    assert records[0, "half"].metrics["psnr"] == 120.0


def test_methods_of_the_arena_are_counted_and_calibrated_once(
    job_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture
):
    variants = """
[calibration]
texts = ["a green square orbits over a plain background"]
[variants.uniform-skip-order-0]
steps = 10
full_steps = 5
[variants.searched-schedule]
full_steps = 5
"""
    job_file.write_text(job_file.read_text().split("[variants")[0] + variants)
    records = run(job_file, tmp_path / "run")
    assert records[0, "uniform-skip-order-0"].compute_fraction == pytest.approx(0.5, abs=0.02)
    assert records[0, "searched-schedule"].compute_fraction == pytest.approx(0.5, abs=0.02)
    (calibration,) = (tmp_path / "run" / "units").glob("calibration-searched-schedule-*.json")
    assert json.loads(calibration.read_text())["result"]
    show_plan(read_job(job_file), str(tmp_path / "run"), JobOptions())
    assert capsys.readouterr().out.startswith("0 videos to make")


def test_another_job_or_another_model_is_refused_before_anything_runs(
    job_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_wan_pipeline: WanPipeline
):
    out = tmp_path / "run"
    job_file.write_text(job_file.read_text().split("[variants")[0])
    run(job_file, out)
    (first, *_) = sorted((out / "units").iterdir())
    first.unlink()
    with torch.no_grad():
        for parameter in tiny_wan_pipeline.transformer.parameters():
            parameter.add_(0.01)
    tiny_wan_pipeline.save_pretrained(job_file.parent / "tiny-wan")
    with pytest.raises(GalaxyDiTError, match=r"belongs to another model.*weights\.transformer"):
        run(job_file, out)
    job_file.write_text(job_file.read_text().replace("steps = 10", "steps = 9"))
    monkeypatch.setattr(maker, "load_pipeline", lambda *_, **__: pytest.fail("it must be refused earlier"))
    with pytest.raises(GalaxyDiTError, match=r"belongs to another job\. Changed: steps: 10 -> 9"):
        run(job_file, out)
    assert not first.exists()


def test_a_refused_variant_leaves_the_run_as_it_was(job_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    out, plain = tmp_path / "run", job_file.read_text().split("[variants")[0]
    bad, good = (f'[variants.fast]\nmethod = "galaxydit"\n{goal}\n' for goal in ("min_psnr = 60", "speedup = 2"))

    def make(text: str) -> int:
        job_file.write_text(text)
        return exit_code("eval", "run", job_file, "--out", out)

    assert make(plain) == 0
    before = (out / "run.json").read_bytes()
    assert make(plain + bad) == 2
    assert "variants.fast: min_psnr=60.0 is not allowed" in capsys.readouterr().err
    assert (out / "run.json").read_bytes() == before
    assert make(plain + good) == 0
    capsys.readouterr()
    assert make(plain) == 0
    assert "this run also has the variant fast of earlier commands" in " ".join(capsys.readouterr().err.split())


def test_a_refused_extension_is_withdrawn_also_where_a_failed_unit_was_made_anew(invented_job: Job, tmp_path: Path):
    store = open_run(tmp_path, invented_job)
    before, (first, *_) = store.conditions(KIND), invented_job.units()
    store.commit(new_record(first, None, "it failed"), {})
    extended = replace(invented_job, prompts=(*invented_job.prompts, "another"))
    open_run(tmp_path, extended)
    store.discard(first.id, store.read(first.id))  # as a run does that makes failed units again
    withdraw(store, before, extended)
    assert store.conditions(KIND) == before


def test_a_finished_job_waits_for_no_model(invented_job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    store = open_run(tmp_path, invented_job)
    first, second = invented_job.units()
    store.commit(new_record(first, {"versions": {}}), {})
    store.commit(new_record(second, None, "it failed"), {})
    monkeypatch.setitem(sys.modules, maker.__name__, None)  # an import would fail
    assert run_job(invented_job, store) == Outcome(done=1, failed=1)
    with pytest.raises(ImportError):
        run_job(invented_job, store, retry_failed=True, allow_mixed_versions=True)


def test_a_changed_image_of_a_prompt_is_refused_and_named(invented_job: Job, tmp_path: Path):
    out, image = tmp_path / "run", tmp_path / "ball.png"
    job = replace(invented_job, prompts=("a cat", json.dumps({"prompt": "a ball", "image": str(image)})))
    with pytest.raises(GalaxyDiTError, match=r"image='.*ball\.png' is not allowed: expected a file"):
        open_run(out, job)
    assert not out.exists()
    image.write_bytes(b"red")
    open_run(out, job)
    assert load_run(out)[1] == job
    open_run(out, job)
    image.write_bytes(b"blue")
    with pytest.raises(
        GalaxyDiTError, match=r"belongs to another job\. Changed: files\..*ball\.png: '\w{64}' -> '\w{64}'"
    ):
        open_run(out, job)


def test_a_variant_that_does_not_suit_the_model_is_refused_before_anything_runs(job_file: Path, tmp_path: Path):
    text = job_file.read_text().replace("threshold = 3.0", 'speedup = 2.0\nprofile = "wan-tiny"')
    job_file.write_text(text)
    with pytest.raises(GalaxyDiTError, match=r"variants\.galaxydit: profile=.* does not belong to this model"):
        run(job_file, tmp_path / "run")
    assert not list((tmp_path / "run" / "units").iterdir())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("steps = 5\nfull_steps = 3", r"steps=5 is not allowed: expected 10, the steps of the job; pass steps = 10"),
        ("steps = 10\nfull_steps = 1", r"full_steps=1 is not allowed: expected a number from 2 to 10"),
    ],
)
def test_a_setting_of_a_compared_method_is_refused_before_anything_runs(
    job_file: Path, tmp_path: Path, options: str, message: str
):
    job_file.write_text(f"{job_file.read_text()}\n[variants.uniform-skip-order-0]\n{options}\n")
    with pytest.raises(GalaxyDiTError, match=rf"variants\.uniform-skip-order-0: {message}"):
        run(job_file, tmp_path / "run")
    assert not list((tmp_path / "run" / "units").iterdir())


def test_the_command_runs_tells_of_failures_and_makes_them_again(
    job_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    out, make = tmp_path / "run", maker.VideoMaker._generate

    def raise_on_half(self: maker.VideoMaker, unit: Unit) -> Any:
        if unit.data["variant"]["name"] == "half":
            raise RuntimeError("half is [bold]not[/bold] enough")
        return make(self, unit)

    monkeypatch.setattr(maker.VideoMaker, "_generate", raise_on_half)
    assert exit_code("eval", "run", job_file, "--out", out) == 1
    assert "4 done, 2 failed" in capsys.readouterr().out
    assert exit_code("eval", "status", out) == 0
    shown = capsys.readouterr().out
    assert "4 done, 2 failed, 0 remaining" in shown
    assert "RuntimeError: half is [bold]not[/bold] enough" in shown
    monkeypatch.setattr(maker.VideoMaker, "_generate", make)
    assert exit_code("eval", "run", job_file, "--out", out) == 1
    assert exit_code("eval", "run", job_file, "--out", out, "--retry-failed") == 0
    assert "6 done, 0 failed" in capsys.readouterr().out


def test_the_command_shows_an_example_that_is_a_job(tmp_path: Path, capsys: pytest.CaptureFixture):
    assert exit_code("eval", "run", "--example") == 0
    (tmp_path / "job.toml").write_text(capsys.readouterr().out)
    assert len(read_job(tmp_path / "job.toml").units()) == 16


def test_the_command_refuses_in_one_line(job_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    job_file.write_text(job_file.read_text().replace("steps = 10", "stebs = 10"))
    assert exit_code("eval", "run", job_file, "--out", tmp_path / "run") == 2
    assert "did you mean 'steps'?" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
    assert exit_code("eval", "status", tmp_path) == 2
    assert "holds no run.json" in capsys.readouterr().err


def test_a_folder_with_files_of_others_is_refused_and_nothing_in_it_is_touched(
    job_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture
):
    mine = tmp_path / "project"
    for name in ("scratch/mine/precious", "frames/my.png", "claims/paper.pdf", "job.toml"):
        (mine / name).parent.mkdir(parents=True, exist_ok=True)
        (mine / name).write_text("mine")
    assert exit_code("eval", "run", job_file, "--out", mine) == 2
    assert "neither empty nor a run" in capsys.readouterr().err
    files = sorted(path for path in mine.rglob("*") if path.is_file())
    assert len(files) == 4
    assert all(path.read_text() == "mine" for path in files)


def test_status_names_damaged_videos_and_the_next_run_makes_them_again(
    job_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture
):
    job_file.write_text(job_file.read_text().split("[variants")[0])
    out = tmp_path / "run"
    run(job_file, out)
    first, second = sorted((out / "files").glob("*.mp4"))
    first.write_bytes(b"")
    content = second.read_bytes()
    second.write_bytes(content[::-1])
    capsys.readouterr()
    assert exit_code("eval", "status", out) == 0
    shown = capsys.readouterr().out
    assert "1 done, 0 failed, 1 remaining" in shown
    assert "has 0 bytes instead of" in shown
    assert exit_code("eval", "status", out, "--verify") == 0
    assert "has another content than its record says" in capsys.readouterr().out
    assert exit_code("eval", "status", out, "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["total"], data["done"], data["failed"], data["remaining"]) == (2, 1, 0, 1)
    assert "has 0 bytes instead of" in next(iter(data["reasons"].values()))
    assert exit_code("eval", "run", job_file, "--out", out) == 0
    assert second.read_bytes() == content[::-1]
    assert exit_code("eval", "run", job_file, "--out", out, "--verify") == 0
    exit_code("eval", "status", out, "--verify")
    assert "2 done, 0 failed, 0 remaining" in capsys.readouterr().out


def test_an_interrupt_says_how_far_it_is_and_that_it_goes_on(
    job_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    original = maker.VideoMaker._generate

    def interrupt(self: maker.VideoMaker, unit: Unit) -> Any:
        if unit.data["variant"]["name"] == "half":
            raise KeyboardInterrupt
        return original(self, unit)

    monkeypatch.setattr(maker.VideoMaker, "_generate", interrupt)
    assert exit_code("eval", "run", job_file, "--out", tmp_path / "run") == 130
    assert "stopped, 2 of 6 done; run the same command again to continue" in capsys.readouterr().err


def test_ray_takes_an_address_or_none_and_its_options_need_it(job_file: Path, tmp_path: Path, capsys: Any):
    seen: list[tuple[str | None, int | None]] = []
    app = typer.Typer()

    @app.command(cls=RayCommand)
    @grouped
    def read(*, job: str, cluster: RayOptions) -> None:
        seen.append((cluster.ray, cluster.workers))

    lines = ("j", "j --ray", "--ray j", "j --ray auto", "j --ray ray://h:1 --workers 2", "j --ray --workers 2")
    for line in lines:
        assert CliRunner().invoke(app, line.split()).exit_code == 0
    assert seen == [(None, None), ("local", None), ("local", None), ("auto", None), ("ray://h:1", 2), ("local", 2)]
    assert exit_code("eval", "run", job_file, "--out", tmp_path / "run", "--workers", 2) == 2
    assert "--workers=2 has no effect without --ray" in " ".join(capsys.readouterr().err.replace("│", " ").split())
