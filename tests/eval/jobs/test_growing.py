"""A finished run that gets new variants, on a model with random weights: only the new videos are denoised."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from galaxydit.eval.jobs.job import PLAIN, Job, Variant
from galaxydit.eval.jobs.jobfile import read_job
from galaxydit.eval.jobs.maker import VideoMaker
from galaxydit.eval.jobs.record import DECODER_INPUT, VideoRecord
from galaxydit.eval.jobs.run_job import load_run, open_run, run_job
from galaxydit.eval.report.read_run import read_run
from galaxydit.pipelines.runs import InProcess, Outcome

PROMPTS = 3  # 32 give the same result
BRANCHES = 2
HALF = Variant("half", "fewer-steps", {"steps": 5})
COUNTED = Variant("even", "uniform-skip-order-0", {"steps": 10, "full_steps": 5})


@pytest.fixture
def job(job_file: Path) -> Job:
    """A few prompts with the baseline alone."""
    return replace(read_job(job_file), prompts=tuple(f"a ball, {n}" for n in range(PROMPTS)), variants=(PLAIN,))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each call of a transformer."""
    seen: list[int] = []
    prepare = VideoMaker.prepare

    def count(maker: VideoMaker, rank: Any) -> None:
        prepare(maker, rank)
        maker.pipe.transformer.register_forward_pre_hook(lambda *_: seen.append(1))

    monkeypatch.setattr(VideoMaker, "prepare", count)
    return seen


def run(out: Path, job: Job) -> Outcome:
    """Give a job to a folder, and make what it lacks with a model that is loaded for this."""
    store = open_run(out, job)
    return run_job(load_run(out)[1], store, InProcess())


def records(out: Path) -> dict[tuple[int, str], VideoRecord]:
    return {(record.prompt_index, record.variant): record for record in read_run(out).records}


def test_a_variant_added_to_a_finished_run_makes_its_own_videos_alone(
    job: Job, tmp_path: Path, calls: list[int]
) -> None:
    assert run(tmp_path / "run", job) == Outcome(PROMPTS, 0)
    finished = {name: record.finished_at for name, record in records(tmp_path / "run").items()}
    assert len(calls) == PROMPTS * 10 * BRANCHES
    calls.clear()
    assert run(tmp_path / "run", replace(job, variants=(*job.variants, HALF))) == Outcome(2 * PROMPTS, 0)
    assert len(calls) == PROMPTS * 5 * BRANCHES, "no baseline is denoised again"
    after = records(tmp_path / "run")
    assert {name: after[name].finished_at for name in finished} == finished

    run(tmp_path / "at once", replace(job, prompts=job.prompts[:2], variants=(*job.variants, HALF)))
    for place, record in records(tmp_path / "at once").items():
        assert after[place].frames_sha256 == record.frames_sha256
        assert after[place].metrics == record.metrics, "compared with the very same baseline, to the last bit"


def test_a_job_without_baseline_makes_none(job: Job, tmp_path: Path, calls: list[int]) -> None:
    alone = replace(job, prompts=job.prompts[:2], variants=(HALF,), baseline=False, metrics=None)
    assert run(tmp_path / "run", alone) == Outcome(2, 0)
    assert len(calls) == 2 * 5 * BRANCHES
    (record, *_) = records(tmp_path / "run").values()
    assert set(record.metrics) == {"temporal_flickering"}
    assert not {"psnr", "ssim"} & set(record.skipped), "metrics with a reference are not offered"
    assert not list((tmp_path / "run" / "files").glob(f"*.{DECODER_INPUT}"))


def test_a_baseline_whose_latents_do_not_give_its_frames_is_denoised_again(
    job: Job, tmp_path: Path, calls: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    """Each prompt's latents are damaged in another way."""
    out, more = tmp_path / "run", replace(job, variants=(*job.variants, HALF))
    run(out, job)
    gone, damaged, other = sorted((out / "files").glob(f"*.{DECODER_INPUT}"))
    gone.unlink()
    damaged.write_bytes(bytes(damaged.stat().st_size))  # of the same size, so that the record still counts
    other.write_bytes(other.read_bytes()[:-64] + bytes(64))
    calls.clear()
    with caplog.at_level(logging.WARNING):
        assert run(out, more).failed == 0
    assert len(calls) == PROMPTS * (10 + 5) * BRANCHES
    assert "does not compute reproducibly" not in caplog.text
    run(tmp_path / "at once", more)
    after, at_once = records(out), records(tmp_path / "at once")
    for prompt in range(PROMPTS):
        assert after[prompt, "half"].metrics == at_once[prompt, "half"].metrics


def test_a_compared_method_needs_a_baseline_whose_operations_were_counted(
    job: Job, tmp_path: Path, calls: list[int]
) -> None:
    job = replace(job, prompts=job.prompts[:1])
    run(tmp_path / "run", job)
    calls.clear()
    counted = replace(job, variants=(*job.variants, COUNTED))
    run(tmp_path / "run", counted)
    assert len(calls) > 10 * BRANCHES, "the first baseline was not counted, so it is generated again"
    assert records(tmp_path / "run")[0, "even"].compute_fraction == pytest.approx(0.5, abs=0.02)


def test_a_counted_baseline_serves_compared_methods_that_are_added(job: Job, tmp_path: Path, calls: list[int]) -> None:
    counted = replace(job, prompts=job.prompts[:1], variants=(PLAIN, COUNTED))
    run(tmp_path / "run", counted)
    calls.clear()
    more = replace(COUNTED, name="sparse", options={"steps": 10, "full_steps": 2})
    run(tmp_path / "run", replace(counted, variants=(*counted.variants, more)))
    assert len(calls) == 10 * BRANCHES, "the added variant alone; it skips blocks within the calls"
    assert records(tmp_path / "run")[0, "sparse"].compute_fraction == pytest.approx(0.2, abs=0.02)


def test_a_decoder_that_is_not_reproducible_keeps_no_latents(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("galaxydit.eval.jobs.decoder_input.hash_frames", lambda _: "another")
    assert run(tmp_path / "run", replace(job, prompts=job.prompts[:1])) == Outcome(1, 0)
    assert not list((tmp_path / "run" / "files").glob(f"*.{DECODER_INPUT}"))
