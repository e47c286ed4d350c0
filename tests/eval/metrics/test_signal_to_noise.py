import math

import numpy as np
import pytest
from skimage.metrics import peak_signal_noise_ratio

from galaxydit.eval.metrics import METRICS


def psnr(video: np.ndarray, reference: np.ndarray) -> float:
    return METRICS["psnr"](video, reference)


def test_psnr_agrees_with_scikit_image(pair):
    video, reference = pair
    assert psnr(video, reference) == pytest.approx(peak_signal_noise_ratio(reference, video, data_range=1.0), abs=1e-4)


def test_psnr_of_each_frame_agrees_with_scikit_image(pair):
    per_frame = [psnr(a[None], b[None]) for a, b in zip(*pair, strict=True)]
    expected = [peak_signal_noise_ratio(b, a, data_range=1.0) for a, b in zip(*pair, strict=True)]
    assert per_frame == pytest.approx(expected, abs=1e-4)


def test_psnr_takes_the_mean_over_all_frames_before_the_logarithm():
    reference = np.zeros((2, 16, 16, 3), np.float32)
    video = reference.copy()
    video[1] = 0.1
    assert psnr(video, reference) == pytest.approx(-10 * math.log10(0.01 / 2), abs=1e-4)


def test_psnr_of_equal_videos_is_120_and_of_black_against_white_zero(pair):
    video, _ = pair
    assert psnr(video, video) == 120.0
    assert psnr(np.zeros_like(video), np.ones_like(video)) == 0.0
