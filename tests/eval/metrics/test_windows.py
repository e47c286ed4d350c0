import numpy as np
import pytest
from scipy.signal import convolve2d

from galaxydit.eval.metrics.structural import gaussian_window, local_mean, local_moments


@pytest.mark.parametrize("side", [3, 5, 11])
def test_the_mean_is_that_of_the_square_window_inside_the_image(side):
    image = np.random.default_rng(0).random((23, 30))
    window = gaussian_window(side, 1.5)
    expected = convolve2d(image, np.outer(window, window), mode="valid")
    assert local_mean(image, window) == pytest.approx(expected)


def test_channels_are_kept_apart():
    image = np.random.default_rng(0).random((20, 21, 3))
    window = gaussian_window(5, 1.0)
    expected = np.stack([local_mean(image[..., channel], window) for channel in range(3)], axis=-1)
    assert np.array_equal(local_mean(image, window), expected)


def test_a_flat_image_has_no_variance_and_a_shifted_one_the_same():
    window = gaussian_window(11, 1.5)
    noise = np.random.default_rng(0).random((30, 30))
    _, _, variance_x, variance_y, covariance = local_moments(np.full((30, 30), 0.3), noise, window)
    assert variance_x == pytest.approx(np.zeros((20, 20)), abs=1e-15)
    assert covariance == pytest.approx(np.zeros((20, 20)), abs=1e-12)
    assert variance_y == pytest.approx(local_moments(noise + 1, noise, window)[2], abs=1e-12)
