import math

import numpy as np
import pytest
import torch
from torchmetrics.functional.image import visual_information_fidelity

from galaxydit.eval.metrics.information import VIF


def vif(video, reference):
    return VIF(video, reference)


def luma(frame: np.ndarray) -> np.ndarray:
    return 255 * (0.299 * frame[..., 0].astype(float) + 0.587 * frame[..., 1] + 0.114 * frame[..., 2])


def plain_vif(image: np.ndarray, reference: np.ndarray) -> float:
    """Window by window and scale by scale, in logarithms of base 10."""
    kept, told = 0.0, 0.0
    for scale, side in enumerate((17, 9, 5, 3)):
        offsets = np.arange(side) - side // 2
        weights = np.exp(-(offsets[:, None] ** 2 + offsets[None, :] ** 2) / (2 * (side / 5) ** 2))
        weights /= weights.sum()
        windows = [np.lib.stride_tricks.sliding_window_view(a, (side, side)) for a in (image, reference)]
        if scale > 0:
            image, reference = ((window * weights).sum((-1, -2))[::2, ::2] for window in windows)
            windows = [np.lib.stride_tricks.sliding_window_view(a, (side, side)) for a in (image, reference)]
        centred = [window - (window * weights).sum((-1, -2), keepdims=True) for window in windows]
        for y, x in zip(*(a.reshape(-1, side, side) for a in centred), strict=True):
            variance_x, variance_y = (x * x * weights).sum(), (y * y * weights).sum()
            gain = max(0.0, (x * y * weights).sum() / variance_x)
            unexplained = variance_y - gain * (x * y * weights).sum()
            kept += math.log10(1 + gain**2 * variance_x / (unexplained + 2))
            told += math.log10(1 + variance_x / 2)
    return kept / told


def test_vif_agrees_with_the_plain_formula(medium_pair):
    video, reference = (array[:1] for array in medium_pair)
    assert vif(video, reference) == pytest.approx(plain_vif(luma(video[0]), luma(reference[0])), rel=1e-6)


def test_vif_of_each_frame_agrees_with_torchmetrics(medium_pair):
    images = [torch.from_numpy(luma(video))[:, None] for video in medium_pair]
    expected = visual_information_fidelity(*images, reduction="none")
    per_frame = [vif(a[None], b[None]) for a, b in zip(*medium_pair, strict=True)]
    assert per_frame == pytest.approx(expected.numpy(), rel=1e-6)
    assert vif(*medium_pair) == pytest.approx(float(expected.mean()), rel=1e-6)


def test_vif_is_one_for_equal_videos_and_above_for_more_contrast(medium_pair):
    _, reference = medium_pair
    assert vif(reference, reference) == pytest.approx(1.0)
    assert vif(np.clip(1.2 * (reference - 0.5) + 0.5, 0, 1), reference) > 1.0
    assert vif(1 - reference, reference) == 0.0


def test_a_flat_reference_frame_has_no_value_and_does_not_count(medium_pair):
    video, reference = (array.copy() for array in medium_pair)
    reference[0] = 0.25
    assert vif(video, reference) == vif(video[1:], reference[1:])
    assert math.isnan(vif(video[:1], reference[:1]))


def test_vif_refuses_sides_too_small_for_its_scales():
    small = np.zeros((2, 40, 64, 3))
    with pytest.raises(ValueError, match="40x64, allowed are sides from 41 pixels"):
        vif(small, small)
