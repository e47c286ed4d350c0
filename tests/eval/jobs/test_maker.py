"""What a maker does with units of a job whose videos are invented; everything else is real."""

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from galaxydit.eval.jobs.job import Job, Variant
from galaxydit.eval.jobs.maker import VideoMaker
from galaxydit.eval.report.read_run import read_run
from galaxydit.pipelines.runs import Outcome, Unit, run


def content(root: Path) -> dict[str, tuple[str, str | None, str]]:
    return {
        record.unit: (record.status, record.frames_sha256, str(record.metrics)) for record in read_run(root).records
    }


def test_variants_of_a_failed_baseline_fail_at_once_and_are_made_again_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, invented_maker: Callable[..., VideoMaker], invented_job: Job
):
    maker, invent = invented_maker(tmp_path / "run", invented_job), VideoMaker._generate

    def raise_on_baseline(maker: VideoMaker, unit: Unit) -> Any:
        if unit.data["variant"]["name"] == "baseline":
            raise RuntimeError("no luck")
        return invent(maker, unit)

    monkeypatch.setattr(VideoMaker, "_generate", raise_on_baseline)
    assert run(invented_job.units(), maker, maker.store) == Outcome(0, 2)
    records = read_run(tmp_path / "run").records
    assert [record.attempts for record in records] == [3, 1]
    assert "failed, so there is nothing to compare with" in records[1].traceback
    monkeypatch.setattr(VideoMaker, "_generate", invent)
    assert run(invented_job.units(), maker, maker.store, retry_failed=True) == Outcome(2, 0)


def test_a_baseline_that_another_process_made_is_made_again_for_its_variants(
    tmp_path: Path, invented_maker: Callable[..., VideoMaker], invented_job: Job
):
    job = replace(invented_job, prompts=("a cat", "a dog"))
    maker = invented_maker(tmp_path / "whole", job)
    run(job.units(), maker, maker.store)
    first = invented_maker(tmp_path / "parts", job)
    run(job.units()[:1], first, first.store)
    second = invented_maker(tmp_path / "parts", job)
    run(job.units(), second, second.store)
    assert content(tmp_path / "parts") == content(tmp_path / "whole")


def test_a_baseline_that_differs_the_second_time_is_warned_of(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    invented_maker: Callable[..., VideoMaker],
    invented_job: Job,
):
    maker, invent = invented_maker(tmp_path / "run", invented_job), VideoMaker._generate
    run(invented_job.units()[:1], maker, maker.store)
    other = invented_maker(tmp_path / "run", invented_job)

    def invent_another(maker: VideoMaker, unit: Unit) -> Any:
        return invent(maker, replace(unit, data={**unit.data, "prompt": unit.data["prompt"] + "!"}))

    monkeypatch.setattr(VideoMaker, "_generate", invent_another)
    with caplog.at_level(logging.WARNING):
        run(invented_job.units(), other, other.store)
    assert "does not compute reproducibly" in caplog.text


def test_the_frames_of_a_baseline_serve_its_group_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, invented_maker: Callable[..., VideoMaker], invented_job: Job
):
    maker, made = invented_maker(tmp_path / "run", invented_job), []
    job = replace(
        invented_job, prompts=("a cat", "a dog"), variants=(*invented_job.variants, Variant("b", "galaxydit"))
    )
    maker.job, invent = job, VideoMaker._generate
    monkeypatch.setattr(
        VideoMaker, "_generate", lambda maker, unit: made.append(unit.data["variant"]["name"]) or invent(maker, unit)
    )
    run(job.units(), maker, maker.store)
    assert made == ["baseline", "fast", "b"] * 2
