import numpy as np
import pytest
from skimage.metrics import structural_similarity

from galaxydit.eval.metrics import METRICS


def ssim(video: np.ndarray, reference: np.ndarray) -> float:
    return METRICS["ssim"](video, reference)


def ms_ssim(video: np.ndarray, reference: np.ndarray) -> float:
    return METRICS["ms_ssim"](video, reference)


def test_ssim_of_each_frame_agrees_with_scikit_image(pair):
    options = {"gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False, "data_range": 1.0}
    expected = [structural_similarity(a, b, channel_axis=-1, **options) for a, b in zip(*pair, strict=True)]
    assert [ssim(a[None], b[None]) for a, b in zip(*pair, strict=True)] == pytest.approx(expected, abs=1e-4)
    assert ssim(*pair) == pytest.approx(np.mean(expected), abs=1e-4)


def test_ssim_of_equal_videos_is_one_and_falls_with_noise(pair):
    video, reference = pair
    worse = np.clip(reference + 3 * (video - reference), 0, 1)
    assert ssim(reference, reference) == pytest.approx(1.0)
    assert ssim(worse, reference) < ssim(video, reference) < 1.0


def plain_ms_ssim(image: np.ndarray, reference: np.ndarray) -> float:
    """One channel, window by window and scale by scale, as the paper says it."""
    offsets = np.arange(11) - 5
    weights = np.exp(-(offsets[:, None] ** 2 + offsets[None, :] ** 2) / (2 * 1.5**2))
    weights /= weights.sum()
    result = 1.0
    for exponent in (0.0448, 0.2856, 0.3001, 0.2363, 0.1333):
        windows = [np.lib.stride_tricks.sliding_window_view(a, (11, 11)) for a in (image, reference)]
        mean_x, mean_y = ((window * weights).sum((-1, -2)) for window in windows)
        x, y = windows[0] - mean_x[..., None, None], windows[1] - mean_y[..., None, None]
        cs = (2 * (x * y * weights).sum((-1, -2)) + 0.03**2) / (((x * x + y * y) * weights).sum((-1, -2)) + 0.03**2)
        luminance = (2 * mean_x * mean_y + 0.01**2) / (mean_x**2 + mean_y**2 + 0.01**2)
        last = exponent == 0.1333
        result *= float((luminance * cs if last else cs).mean()) ** exponent
        height, width = (side // 2 * 2 for side in image.shape)
        image, reference = (
            a[:height, :width].reshape(height // 2, 2, width // 2, 2).mean((1, 3)) for a in (image, reference)
        )
    return result


def test_ms_ssim_agrees_with_the_plain_formula(large_pair):
    grey = [video[:1].mean(-1, dtype=np.float64) for video in large_pair]
    video, reference = (np.repeat(a[..., None], 3, axis=-1) for a in grey)
    assert ms_ssim(video, reference) == pytest.approx(plain_ms_ssim(grey[0][0], grey[1][0]), abs=1e-6)


def test_ms_ssim_of_equal_videos_is_one_and_forgives_more_noise_than_ssim(large_pair):
    video, reference = large_pair
    assert ms_ssim(reference, reference) == pytest.approx(1.0)
    assert ssim(video, reference) < ms_ssim(video, reference) < 1.0


def test_ms_ssim_of_a_negative_is_zero(large_pair):
    _, reference = large_pair
    assert ms_ssim(1 - reference, reference) == 0.0


def test_sides_too_small_for_the_window_are_refused():
    small = np.zeros((2, 8, 16, 3))
    with pytest.raises(ValueError, match="8x16 pixels: expected sides of at least 11"):
        ssim(small, small)
    medium = np.zeros((2, 175, 200, 3))
    with pytest.raises(ValueError, match="175x200 pixels: expected sides of at least 176"):
        ms_ssim(medium, medium)
