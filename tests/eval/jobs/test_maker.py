"""What a maker does with units of a job whose videos are invented; everything else is real."""

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from galaxydit.eval.jobs.gates import Gates
from galaxydit.eval.jobs.job import Job, Variant
from galaxydit.eval.jobs.jobfile import read_job
from galaxydit.eval.jobs.maker import VideoMaker
from galaxydit.eval.jobs.run_job import open_run, run_job
from galaxydit.eval.metrics import METRICS
from galaxydit.eval.metrics.metric import Metric
from galaxydit.eval.report.payload import page_data
from galaxydit.eval.report.read_run import read_run
from galaxydit.eval.report.verdicts import check_run
from galaxydit.pipelines.runs import Outcome, Unit, run

VIDEO_METRICS = [name for name, metric in METRICS.items() if isinstance(metric, Metric)]


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


@pytest.mark.parametrize(
    "by_products",
    [VIDEO_METRICS, ["thumbnail.jpg"], ["decoder_input.safetensors"], ["report"], ["versions"], ["device"]],
    ids=lambda names: "metrics" if len(names) > 1 else names[0],
)
def test_a_by_product_that_raises_is_named_and_the_video_is_made_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    job_file: Path,
    by_products: list[str],
):
    def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError("no luck")

    places = {
        "thumbnail.jpg": "galaxydit.eval.jobs.maker.encode_thumbnail",
        "decoder_input.safetensors": "galaxydit.eval.jobs.maker.to_bytes",
        "report": "galaxydit.Report.to_dict",
        "versions": "galaxydit.pipelines.trial.package_versions",
        "device": "galaxydit.pipelines.trial.device_name",
    }
    for by_product in by_products:
        if by_product in METRICS:
            broken = replace(METRICS[by_product], function=fail, missing=lambda: None, min_frames=1, min_side=1)
            monkeypatch.setitem(METRICS, by_product, replace(broken, check_prompt=lambda _: None))
        else:
            monkeypatch.setattr(places[by_product], fail)
    metrics = tuple(name for name in by_products if name in METRICS)
    job = replace(read_job(job_file), prompts=("a red ball moves left",), metrics=metrics or ("psnr",))
    store = open_run(tmp_path / "run", job)
    assert run_job(job, store) == Outcome(3, 0)
    finished = read_run(tmp_path / "run")
    assert all(record.attempts == 1 and record.video for record in finished.records)
    assert {name for record in finished.records for name in record.failures} == {*by_products}
    assert {reason for record in finished.records for reason in record.failures.values()} == {"RuntimeError: no luck"}
    lines = page_data(finished, {}, "")["skipped"]
    for by_product in by_products:
        count = sum(by_product in record.failures for record in finished.records)
        assert f"{by_product} failed for {count} videos: RuntimeError: no luck" in lines
        if by_product in METRICS:
            verdicts = check_run(finished, Gates(("galaxydit",), {by_product: -1.0}))
            assert not any(verdict.holds for verdict in verdicts)


def test_a_job_with_an_empty_list_of_metrics_measures_none(
    tmp_path: Path, invented_maker: Callable[..., VideoMaker], invented_job: Job
):
    job = replace(invented_job, variants=invented_job.variants[1:], baseline=False, metrics=())
    maker = invented_maker(tmp_path / "run", job)
    assert run(job.units(), maker, maker.store) == Outcome(1, 0)
    (record,) = read_run(tmp_path / "run").records
    assert (record.metrics, record.skipped) == ({}, {})


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
