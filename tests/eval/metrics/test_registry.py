import numpy as np
import pytest

from galaxydit.eval.metrics import METRICS, measure, select
from galaxydit.eval.metrics.metric import Metric

AGAINST_REFERENCE = ["psnr", "ssim", "ms_ssim", "vmaf", "temporal_flickering"]


@pytest.mark.parametrize("name", AGAINST_REFERENCE)
def test_values_lie_in_their_range(name, large_pair):
    metric = METRICS[name]
    assert metric.low <= metric(*large_pair) <= metric.high


@pytest.mark.parametrize("name", AGAINST_REFERENCE[:-1])
def test_an_equal_video_is_better_than_a_noisy_one(name, large_pair):
    video, reference = large_pair
    metric = METRICS[name]
    better = metric(reference, reference) - metric(video, reference)
    assert (better > 0) == metric.higher_is_better


@pytest.mark.parametrize("name", AGAINST_REFERENCE)
def test_uint8_and_floats_of_the_same_video_measure_the_same(name, large_pair):
    levels = [np.rint(video * 255).astype(np.uint8) for video in large_pair]
    floats = [video.astype(np.float32) / 255 for video in levels]
    assert METRICS[name](*levels) == pytest.approx(METRICS[name](*floats), abs=1e-4)


@pytest.mark.parametrize("name", AGAINST_REFERENCE[:-1])
def test_videos_that_cannot_be_compared_are_refused(name, large_pair):
    video, _ = large_pair
    with pytest.raises(ValueError, match=r"shapes=.* expected equal ones"):
        METRICS[name](video, video[:-1])
    with pytest.raises(ValueError, match="reference='-1 to"):
        METRICS[name](video, video * 2 - 1 - (video.min() * 2))
    with pytest.raises(ValueError, match="reference=None is not allowed"):
        METRICS[name](video)


VIDEO_METRICS = [metric for metric in METRICS.values() if isinstance(metric, Metric)]


@pytest.mark.parametrize("metric", VIDEO_METRICS, ids=lambda metric: metric.name)
def test_what_is_no_video_is_refused(metric):
    with pytest.raises(ValueError, match=r"expected \(frames, height, width, 3\)"):
        metric(np.zeros((64, 64, 3)), np.zeros((64, 64, 3)))


def test_a_video_gets_every_score_it_can_have_and_a_reason_for_the_others(pair):
    values, skipped, _ = measure(*pair, "a cat", [METRICS[name] for name in ("psnr", "ms_ssim", "caption_motions")])
    assert list(values) == ["psnr"]
    assert "sides of at least 176" in skipped["ms_ssim"]
    assert "4 frames: expected at least 5" in skipped["caption_motions"]


def test_every_metric_is_tried_unless_some_are_chosen(pair):
    values, skipped, _ = measure(*pair, "a cat")
    assert {*values, *skipped} == set(METRICS)
    assert {"psnr", "ssim", "temporal_flickering"} <= set(values)


def test_a_baseline_gets_only_what_needs_no_reference(pair):
    values, skipped, _ = measure(pair[0], None, "a cat")
    assert list(values) == ["temporal_flickering"]
    assert "which this video is" in skipped["psnr"]


def test_chosen_metrics_keep_their_order_and_unknown_ones_are_refused_with_what_is_allowed():
    assert [metric.name for metric in select(["ssim", "psnr"])] == ["ssim", "psnr"]
    with pytest.raises(ValueError, match="metrics='snr' is not allowed: expected one of psnr, ssim"):
        select(["psnr", "snr"])


def test_a_chosen_metric_that_lacks_something_is_refused_with_the_cure():
    if METRICS["lpips"].missing() is None:
        pytest.skip("LPIPS can be measured here")
    with pytest.raises(ValueError, match="metrics='lpips' is not allowed: expected one that can be measured here"):
        select(["lpips"])
