"""Means, interpolation and intervals, on numbers."""

import math
from dataclasses import replace

import pytest

from galaxydit.eval.compare.equal_compute import ScoredSetting, at_speedup, compare_at, score
from galaxydit.eval.jobs.record import VideoRecord

SAMPLE = VideoRecord(
    *("", {}, "done", 1, 3.0, "node:1", "2026-01-01"),
    compute_fraction=0.5,
    denoise_seconds=1.0,
    end_to_end_seconds=2.0,
    plain_denoise_seconds=2.0,
    plain_end_to_end_seconds=3.0,
    metrics={"psnr": 30.0, "ssim": 0.9},
)


def with_psnr(psnr: float, **changes: float) -> VideoRecord:
    return replace(SAMPLE, metrics={"psnr": psnr, "ssim": 0.9}, **changes)


def row(method: str, speedup: float, *psnr: float, key: str = "x") -> ScoredSetting:
    samples = [with_psnr(value, compute_fraction=1 / speedup) for value in psnr]
    return score(method, {key: speedup}, samples, [])


def test_a_row_holds_means_sums_and_the_worst():
    samples = [
        with_psnr(20.0, compute_fraction=0.4, denoise_seconds=3.0, bytes_held=7),
        with_psnr(40.0, compute_fraction=0.6, plain_denoise_seconds=6.0),
        with_psnr(60.0, bytes_held=9),
        with_psnr(40.0),
    ]
    found = score("m", {"x": 1}, samples, [], seeds=2)
    assert (found.n, found.psnr_mean, found.psnr_min, found.bytes_held) == (4, 40.0, 20.0, 9)
    assert found.compute_fraction == pytest.approx(0.5)
    assert found.denoise_seconds == pytest.approx(6 / 4)
    assert found.denoise_speedup == pytest.approx((2 + 6 + 2 + 2) / (3 + 1 + 1 + 1))
    assert found.psnr_of_prompt == (30.0, 50.0)


def test_means_of_sound_need_a_value_of_each_video():
    heard = [with_psnr(30.0), with_psnr(40.0)]
    heard = [
        replace(each, metrics={**each.metrics, "si_sdr": value}) for each, value in zip(heard, (4, 8), strict=True)
    ]
    assert score("m", {}, heard, []).si_sdr_mean == 6.0
    found = score("m", {}, [*heard, with_psnr(50.0)], [])
    assert (found.si_sdr_mean, found.log_mel_mean, found.rms_ratio_mean) == (None, None, None)


def test_si_sdr_is_interpolated_as_psnr_is_and_left_out_where_a_setting_lacks_it():
    slow, fast = replace(row("m", 1.0, 40.0), si_sdr_mean=30.0), replace(row("m", 4.0, 20.0), si_sdr_mean=10.0)
    assert at_speedup([slow, fast], 2.0).si_sdr == pytest.approx(20.0)
    assert at_speedup([slow, replace(fast, si_sdr_mean=None)], 2.0).si_sdr is None


def test_a_video_without_a_plain_video_of_its_process_is_compared_with_the_recorded_one():
    plain = replace(SAMPLE, prompt_index=1, seed=5, denoise_seconds=4.0, end_to_end_seconds=8.0)
    timed = {"plain_denoise_seconds": None, "plain_end_to_end_seconds": None}
    found = score("m", {}, [replace(SAMPLE, prompt_index=1, seed=5, **timed)], [SAMPLE, plain])
    assert (found.denoise_speedup, found.end_to_end_speedup) == (4.0, 4.0)


def test_between_two_settings_psnr_is_linear_in_the_log_of_the_speedup():
    found = at_speedup([row("m", 4.0, 20.0, 10.0), row("m", 1.0, 40.0, 20.0)], 2.0)
    assert found.psnr == pytest.approx((30.0 + 15.0) / 2)
    assert found.psnr_of_prompt == pytest.approx((30.0, 15.0))
    assert found.psnr_worst == pytest.approx(15.0)
    assert found.speedups == pytest.approx((1.0, 4.0))


def test_only_the_two_settings_around_count():
    rows = [row("m", speed, 100 - 20 * math.log2(speed)) for speed in (1.0, 2.0, 8.0, 16.0)]
    found = at_speedup([*rows, row("m", 3.0, 50.0)], 2.5)
    assert found.speedups == pytest.approx((2.0, 3.0))


def test_a_setting_that_another_one_beats_in_speed_and_psnr_does_not_count():
    rows = [row("m", 2.0, 40.0), row("m", 2.9, 20.0), row("m", 3.2, 25.0), row("m", 3.2, 30.0)]
    found = at_speedup(rows, 2.9)
    assert found.speedups == pytest.approx((2.0, 3.2))
    assert 30.0 < found.psnr < 40.0
    assert at_speedup(rows, 3.2).psnr == 30.0


def test_a_faster_setting_serves_where_the_slower_ones_are_worse():
    found = at_speedup([row("m", 1.2, 30.0), row("m", 1.6, 33.0), row("m", 2.2, 28.0)], 1.25)
    assert (found.psnr, found.speedups) == (33.0, pytest.approx((1.6,)))


def test_a_setting_that_left_a_video_as_it_was_is_no_end_of_an_interpolation():
    found = at_speedup([row("m", 1.0, 120.0), row("m", 1.2, 120.0), row("m", 2.4, 50.0)], 1.5)
    assert found.psnr is None


def test_a_setting_that_meets_the_speedup_is_taken_alone():
    found = at_speedup([row("m", 1.5, 40.0), row("m", 2.0, 33.0), row("m", 3.0, 1.0)], 2.0)
    assert found.psnr == 33.0
    assert found.settings == ({"x": 2.0},)


@pytest.mark.parametrize(("speedup", "nearest"), [(1.2, 1.5), (4.0, 3.0)])
def test_nothing_is_extrapolated(speedup, nearest):
    found = at_speedup([row("m", 1.5, 40.0), row("m", 3.0, 30.0)], speedup)
    assert found.psnr is None
    assert found.speedups == pytest.approx((nearest,))


def test_methods_are_ordered_and_compared_with_the_best_other_one():
    psnrs = {"good": (30.0, 40.0), "best": (33.0, 41.0), "slow": (50.0, 50.0)}
    rows = [row(name, 1.5 if name == "slow" else 2.0, *values * 3) for name, values in psnrs.items()]
    best, good, slow = compare_at(rows, 2.0)
    assert [best.method, good.method, slow.method] == ["best", "good", "slow"]
    assert (best.ahead, best.best_other) == (2.0, "good")
    assert (good.ahead, good.best_other) == (-2.0, "best")
    assert best.ahead_low is not None
    assert 1.0 <= best.ahead_low <= best.ahead <= best.ahead_high <= 3.0
    assert (slow.psnr, slow.ahead) == (None, None)


def test_the_default_is_compared_with_other_projects_and_not_with_itself_without_a_profile():
    own = [row("galaxydit", 2.0, 33.0, 41.0), row("galaxydit without a profile", 2.0, 32.0, 40.0)]
    found = {one.method: one.best_other for one in compare_at([*own, row("TaylorSeer", 2.0, 30.0, 39.0)], 2.0)}
    assert found["galaxydit"] == found["galaxydit without a profile"] == "TaylorSeer"
    assert found["TaylorSeer"] == "galaxydit"
    assert compare_at(own, 2.0)[0].best_other == "galaxydit without a profile"


def test_a_setting_that_asks_for_the_speedup_is_used_though_a_faster_one_was_better():
    worse, better = row("own", 2.0, 30.0, key="speedup"), row("own", 2.2, 33.0, key="speedup")
    assert at_speedup([worse, better], 2.0).psnr == 30.0
