"""What a dry run says, and that it makes nothing."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from command_line import exit_code

from galaxydit.eval.cost.cost_estimate import BYTES_PER_PIXEL
from galaxydit.eval.jobs.estimate import PlainCost, VariantEstimate, denoise_share, estimate, plain_cost, time_plain
from galaxydit.eval.jobs.job import PLAIN, Job, Variant
from galaxydit.eval.jobs.jobfile import read_job
from galaxydit.eval.jobs.maker import VideoMaker
from galaxydit.eval.jobs.record import video_record
from galaxydit.eval.jobs.run_job import open_run, units_left
from galaxydit.pipelines.flac import encode_flac
from galaxydit.pipelines.generate import NO_COUNTER
from galaxydit.pipelines.runs import run
from galaxydit.pipelines.runs.unit import StoredFile
from galaxydit.pipelines.video import Sound

FAST = Variant("fast", "galaxydit", {"speedup": 4.0})
JOB = Job(model="invented", prompts=("a cat", "a dog"), variants=(PLAIN, FAST), metrics=("psnr",))


@pytest.mark.parametrize(
    ("variant", "share"),
    [
        (FAST, 0.25),
        (Variant("default", "galaxydit"), 0.5),
        (Variant("by error", "galaxydit", {"max_error": 0.1}), 1.0),
        (Variant("by both", "galaxydit", {"speedup": 2.0, "max_error": 0.1}), 1.0),
        (Variant("by psnr", "galaxydit", {"min_psnr": 30.0}), 1.0),
        (Variant("by quality", "galaxydit", {"quality": "balanced"}), 0.5),
        (Variant("lossless", "galaxydit", {"quality": "lossless"}), 1.0),
        (Variant("half", "fewer-steps", {"steps": 10}), 0.5),
        (Variant("levels", "plain-at-scheduled-levels", {"speedup": 2.0, "of": 20}), 0.5),
        (Variant("list", "step-list", {"list": "a", "full": [0, 1, 9, 14, 19]}), 0.25),
        (Variant("other", "teacache", {"threshold": 0.1}), 1.0),
    ],
)
def test_the_share_of_denoising_follows_from_the_options_or_is_an_upper_bound(variant: Variant, share: float) -> None:
    assert denoise_share(variant, 20) == share


def test_seconds_are_those_of_the_runs_own_videos_where_it_has_some(tmp_path: Path, invented_maker) -> None:
    maker = invented_maker(tmp_path / "run", JOB)
    run(JOB.units()[:1], maker, maker.store)
    left, done = units_left(JOB.units(), maker.store)
    assert [unit.id for unit in left] == [unit.id for unit in JOB.units()[1:]]
    (record,) = map(video_record, done)
    files = {"video.mp4": StoredFile("files/a", 3000, "0"), "thumbnail.jpg": StoredFile("files/b", 500, "0")}
    files["sound.flac"] = StoredFile("files/c", 400, "0")
    energy = {"energy_per_video_joules": 3000.0, "avg_power_watts": 600.0}
    records = [replace(record, seconds=5.0, denoise_seconds=4.0, files=files, **energy)]
    plain = plain_cost(records)
    assert plain == PlainCost(4.0, 1.0, None, 600.0, 3400)
    baseline, fast = estimate(JOB, left, records, plain)
    assert baseline == VariantEstimate("baseline", 1, 5.0, 3000.0, 3900, "videos of this run")
    assert fast == VariantEstimate("fast", 2, 4.0, 2400.0, 6800, "a plain video")
    without = [replace(record, seconds=5.0, denoise_seconds=4.0)]
    assert [each.joules for each in estimate(JOB, left, without, plain_cost(without))] == [None, None]


def test_a_dry_run_counts_what_is_missing_times_the_model_and_makes_nothing(
    job_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr("signal.signal", lambda *_: None)  # the command takes SIGTERM over, which is the test run's
    out = tmp_path / "run"
    assert exit_code("eval", "run", job_file, "--out", out, "--dry-run") == 0
    assert "6 videos to make" in capsys.readouterr().out
    assert not out.exists()
    job = read_job(job_file)
    open_run(out, replace(job, prompts=job.prompts[:1]))
    before = (out / "run.json").read_bytes()
    monkeypatch.setattr(VideoMaker, "make", lambda *_: pytest.fail("a dry run makes nothing"))
    assert exit_code("eval", "run", job_file, "--out", out, "--dry-run", "--ray", "--workers", 2) == 0
    shown = capsys.readouterr().out
    assert "6 videos to make" in shown
    assert "on 2 workers\nnothing was made" in shown
    assert "GB of files on 2" in shown
    assert (out / "run.json").read_bytes() == before


def test_a_dry_run_refuses_what_the_run_would_refuse(
    job_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    open_run(tmp_path / "run", read_job(job_file))
    job_file.write_text(job_file.read_text().replace("steps = 10", "steps = 9"))
    assert exit_code("eval", "run", job_file, "--out", tmp_path / "run", "--dry-run") == 2
    assert "steps: 10 -> 9" in capsys.readouterr().err


def test_the_fastest_short_video_counts_and_other_work_is_said(
    job_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    seconds = iter([90.0, 9.0, 6.0, *[30.0] * 10])
    sound = Sound(np.random.default_rng(0).uniform(-1, 1, (2, 24000)).astype(np.float32), 24000)

    def video(*_: object, **__: object) -> SimpleNamespace:
        taken = next(seconds)
        frames = np.zeros((5, 32, 32, 3), np.float32)
        times = {"denoise_seconds": taken, "end_to_end_seconds": taken + 1, "watts": None}
        return SimpleNamespace(frames=frames, sound=sound, load=4.0, energy=NO_COUNTER, **times)

    monkeypatch.setattr("galaxydit.pipelines.generate.generate", video)
    plain = time_plain(read_job(job_file))
    assert (plain.denoise, plain.rest, plain.steps) == (20.0, 1.0, 10)  # 3 of 10 steps were timed
    assert plain.size == BYTES_PER_PIXEL["h264"] * 5 * 32 * 32 + len(encode_flac(sound))
    assert plain.disturbed == "4.0 processes for each core wanted to run"
    monkeypatch.setattr("galaxydit.eval.jobs.estimate.time_plain", lambda _: plain)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    assert exit_code("eval", "run", job_file, "--out", job_file.parent / "run", "--dry-run") == 0
    assert "4.0 processes for each core wanted to run: without other work it takes less" in capsys.readouterr().err


def test_prompts_are_costed_without_making_videos(
    job_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(VideoMaker, "make", lambda *_: pytest.fail("a dry run makes nothing"))
    monkeypatch.setattr("galaxydit.eval.jobs.estimate.time_plain", lambda _: PlainCost(7200.0, 0.0, 10, 500.0, 2e9))
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("a red ball moves left\na blue ball moves right\n")
    base = ("generate", "--model", job_file.parent / "tiny-wan", "--out", tmp_path / "out", "--speedup", 2)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert exit_code(*base, "--prompts", prompts, "--dry-run", "--price", 2.5) == 0
    expected = "2 videos to make, about 2 h, 2 GPU hours, 1 kWh, price 5, 4 GB of files"
    assert expected in capsys.readouterr().out
    assert not (tmp_path / "out").exists()
    assert exit_code(*base, "--prompts", prompts, "--price", 2.5) == 2
    assert "has no effect without --dry-run" in " ".join(capsys.readouterr().err.split())
    assert exit_code(*base, "--prompt", "a red ball", "--dry-run") == 2
