import math

import numpy as np
import pytest

from galaxydit.errors import GalaxyDiTError
from galaxydit.pipelines.psnr import psnr


def test_psnr_agrees_with_scikit_image() -> None:
    metrics = pytest.importorskip("skimage.metrics", reason="scikit-image is not installed")
    video, reference = np.random.default_rng(0).uniform(size=(2, 5, 8, 8, 3)).astype(np.float32)
    expected = metrics.peak_signal_noise_ratio(reference, video, data_range=1.0)
    assert psnr(video, reference) == pytest.approx(expected, abs=1e-4)


def test_psnr_takes_the_mean_over_all_frames_before_the_logarithm() -> None:
    reference = np.zeros((2, 16, 16, 3), np.float32)
    video = reference.copy()
    video[1] = 0.1
    assert psnr(video, reference) == pytest.approx(-10 * math.log10(0.01 / 2), abs=1e-4)


def test_psnr_is_120_for_equal_videos_and_zero_for_black_against_white() -> None:
    black = np.zeros((2, 4, 4, 3), np.float32)
    assert psnr(black, black) == 120.0
    assert psnr(black, black + 1) == 0.0


def test_psnr_refuses_unequal_shapes() -> None:
    with pytest.raises(ValueError, match="equal ones"):
        psnr(np.zeros((2, 4, 4, 3)), np.zeros((3, 4, 4, 3)))


@pytest.mark.filterwarnings("ignore:invalid value encountered in subtract")
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_video_that_overflowed_has_no_psnr(value: float) -> None:
    black, broken = np.zeros((2, 4, 4, 3), np.float32), np.full((2, 4, 4, 3), value, np.float32)
    for pair in ((broken, black), (broken, broken)):
        with pytest.raises(GalaxyDiTError, match="NaN is not allowed: expected numbers; generate again in a wider"):
            psnr(*pair)
