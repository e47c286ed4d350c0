import math
from dataclasses import replace

import pytest

from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.jobs.costs import COSTS
from galaxydit.eval.jobs.job import Job
from galaxydit.eval.jobs.record import VideoRecord
from galaxydit.eval.report.read_run import Run
from galaxydit.eval.report.summary import FigureEstimate, VariantSummary, figures_of, summarise, values_of
from galaxydit.pipelines.runs import Store


def record(
    variant: str = "fast", prompt: int = 0, sample: int = 0, seconds: float = 1.0, **metrics: float
) -> VideoRecord:
    return VideoRecord(
        unit=f"{prompt}-{sample}-{variant}",
        data={},
        seconds=1.0,
        prompt=f"prompt {prompt}",
        prompt_index=prompt,
        seed=10 * prompt + sample,
        sample=sample,
        variant=variant,
        status="done",
        attempts=1,
        video="videos/x.mp4",
        video_sha256="",
        frames_sha256="",
        shape=(5, 32, 32, 3),
        settings={},
        denoise_seconds=seconds,
        end_to_end_seconds=seconds + 1,
        compute_fraction=0.5,
        metrics=metrics,
        versions={},
        device="cpu",
        worker="",
        finished_at="",
    )


def failed(of: VideoRecord) -> VideoRecord:
    return replace(of, status="failed", traceback="RuntimeError: no", metrics={}, denoise_seconds=None, video=None)


def run_of(records: list[VideoRecord], prompts: int = 6) -> Run:
    return Run(Store("unused"), Job(model="m", prompts=tuple(map(str, range(prompts)))), tuple(records), damaged=0)


def summary_of(records: list[VideoRecord], prompts: int = 6) -> VariantSummary:
    return summarise(run_of(records, prompts), "fast")


def estimate_of(records: list[VideoRecord], key: str) -> FigureEstimate:
    return summary_of(records).estimates[key]


def test_a_speedup_is_the_seconds_of_all_pairs_together():
    records = [
        record("baseline", 0, seconds=4.0),
        record("fast", 0, seconds=1.0),
        record("baseline", 1, seconds=2.0),
        record("fast", 1, seconds=2.0),
    ]
    speedup = estimate_of(records, "denoise_speedup")
    assert speedup.mean == 6.0 / 3.0
    assert speedup.worst == 1.0
    assert estimate_of(records, "end_to_end_speedup").mean == 8.0 / 5.0


def test_a_pair_is_one_prompt_and_one_seed():
    records = [
        record("baseline", 0, 0, seconds=4.0),
        record("baseline", 0, 1, seconds=8.0),
        record("fast", 0, 1, seconds=2.0),
    ]
    assert estimate_of(records, "denoise_speedup").mean == 4.0


def test_failed_and_missing_units_are_counted_and_units_without_a_baseline_lie_in_no_speedup():
    records = [
        record("baseline", 0, seconds=4.0),
        record("fast", 0, seconds=2.0, psnr=30.0),
        failed(record("fast", 1, seconds=2.0, psnr=10.0)),
        failed(record("baseline", 2)),
        record("fast", 2, seconds=100.0),
    ]
    summary = summary_of(records, prompts=5)
    assert (summary.done, summary.failed, summary.missing) == (2, 1, 2)
    assert summary.estimates["psnr"].mean == 30.0
    assert summary.estimates["denoise_speedup"].mean == 2.0


def test_the_worst_follows_the_direction_of_the_metric():
    records = [record(prompt=index, psnr=30.0 + index, lpips=0.1 * index) for index in range(3)]
    assert estimate_of(records, "psnr").worst == 30.0
    assert estimate_of(records, "lpips").worst == pytest.approx(0.2)


def test_the_samples_of_a_prompt_are_drawn_together():
    single = [record(prompt=index, psnr=30.0 + index**2) for index in range(6)]
    doubled = [record(prompt=index, sample=sample, psnr=30.0 + index**2) for index in range(6) for sample in (0, 1)]
    one, two = estimate_of(single, "psnr"), estimate_of(doubled, "psnr")
    assert (one.mean, one.low, one.high) == pytest.approx((two.mean, two.low, two.high))


def test_one_prompt_has_a_mean_and_no_interval():
    estimate = estimate_of([record(psnr=30.0), record(sample=1, psnr=32.0)], "psnr")
    assert (estimate.mean, estimate.low, estimate.high) == (31.0, None, None)


def test_equal_values_have_an_interval_of_no_width():
    estimate = estimate_of([record(prompt=index) for index in range(6)], "compute_fraction")
    assert (estimate.mean, estimate.low, estimate.high) == (0.5, 0.5, 0.5)


def test_equal_videos_have_an_infinite_mean_and_no_interval():
    estimate = estimate_of([record(prompt=0, psnr=math.inf), record(prompt=1, psnr=40.0)], "psnr")
    assert (estimate.mean, estimate.worst, estimate.low) == (math.inf, 40.0, None)


def test_an_undefined_value_is_absent():
    assert "ms_ssim" not in values_of(run_of([]), record(ms_ssim=math.nan))
    assert estimate_of([record(prompt=0, ms_ssim=math.nan), record(prompt=1, ms_ssim=0.5)], "ms_ssim").mean == 0.5


def test_a_baseline_has_no_speedup_over_itself():
    baseline = record("baseline", seconds=3.0)
    assert "denoise_speedup" not in values_of(run_of([baseline]), baseline)


def test_joules_are_a_figure_where_a_counter_was_read():
    read = replace(record(), energy_per_video_joules=12.0)
    assert [figure.key for figure in figures_of([record(prompt=1), read])] == [cost.key for cost in COSTS]
    assert estimate_of([record(prompt=1), read], "energy_per_video_joules").mean == 12.0


def test_columns_follow_the_registry_and_an_unknown_metric_is_refused():
    keys = [figure.key for figure in figures_of([record(ssim=0.9), record(prompt=1, psnr=30.0)])]
    assert keys == [*(cost.key for cost in COSTS[:-1]), "psnr", "ssim"]
    with pytest.raises(GalaxyDiTError, match="metrics='sharpness' is not allowed: expected psnr"):
        figures_of([record(sharpness=1.0)])
