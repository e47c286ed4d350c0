import math
from collections.abc import Callable

import numpy as np
import pytest
from skimage.metrics import peak_signal_noise_ratio, structural_similarity

from galaxydit.eval.metrics import psnr, ssim


def pair_of_videos(noise: float = 0.1) -> tuple[np.ndarray, np.ndarray]:
    """A smooth moving pattern, and the same with noise that grows from frame to frame."""
    t, y, x, c = np.meshgrid(*(np.arange(n) for n in (4, 40, 56, 3)), indexing="ij")
    reference = 0.5 + 0.4 * np.sin(0.3 * x + 0.2 * y + t + c)
    error = np.random.default_rng(0).normal(0, noise, reference.shape) * (t + 1) / 4
    return np.clip(reference + error, 0, 1).astype(np.float32), reference.astype(np.float32)


def test_psnr_agrees_with_scikit_image():
    video, reference = pair_of_videos()
    assert psnr(video, reference) == pytest.approx(peak_signal_noise_ratio(reference, video, data_range=1.0), abs=1e-4)


def test_psnr_takes_the_mean_over_all_frames_before_the_logarithm():
    reference = np.zeros((2, 16, 16, 3), np.float32)
    video = reference.copy()
    video[1] = 0.1
    assert psnr(video, reference) == pytest.approx(-10 * math.log10(0.01 / 2), abs=1e-4)


def test_psnr_of_equal_videos_is_infinite_and_of_black_against_white_zero():
    video, _ = pair_of_videos()
    assert psnr(video, video) == math.inf
    assert psnr(np.zeros_like(video), np.ones_like(video)) == 0.0


def test_ssim_agrees_with_scikit_image():
    video, reference = pair_of_videos()
    options = {"gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False, "data_range": 1.0}
    expected = [structural_similarity(a, b, channel_axis=-1, **options) for a, b in zip(video, reference, strict=True)]
    assert ssim(video, reference) == pytest.approx(np.mean(expected), abs=1e-4)


def test_ssim_of_equal_videos_is_one_and_falls_with_noise():
    video, reference = pair_of_videos()
    worse, _ = pair_of_videos(noise=0.3)
    assert ssim(reference, reference) == pytest.approx(1.0)
    assert ssim(worse, reference) < ssim(video, reference) < 1.0


@pytest.mark.parametrize("metric", [psnr, ssim])
def test_uint8_and_floats_of_the_same_video_measure_the_same(metric: Callable):
    levels = [np.rint(video * 255).astype(np.uint8) for video in pair_of_videos()]
    floats = [video.astype(np.float32) / 255 for video in levels]
    assert metric(*levels) == pytest.approx(metric(*floats), abs=1e-4)


@pytest.mark.parametrize("metric", [psnr, ssim])
def test_videos_that_cannot_be_compared_are_refused(metric: Callable):
    video, _ = pair_of_videos()
    with pytest.raises(ValueError, match="allowed are equal shapes"):
        metric(video, video[:-1])
    with pytest.raises(ValueError, match="reference has values from -1 to"):
        metric(video, video * 2 - 1 - (video.min() * 2))


def test_ssim_refuses_videos_smaller_than_its_window():
    with pytest.raises(ValueError, match="sides from 11 pixels"):
        ssim(np.zeros((2, 8, 16, 3)), np.zeros((2, 8, 16, 3)))
