import numpy as np
import pytest

from galaxydit.eval.metrics.flicker import TEMPORAL_FLICKERING


def temporal_flickering(video):
    return TEMPORAL_FLICKERING(video)


def plain_flickering(frames: np.ndarray) -> float:
    """VBench's arithmetic: float32 images, the mean over pairs, then the distance from 255."""
    levels = frames.astype(np.float32)
    errors = [np.mean(np.abs(levels[i] - levels[i + 1])) for i in range(len(levels) - 1)]
    return (255.0 - float(np.mean(np.array(errors)))) / 255.0


@pytest.mark.parametrize("seed", range(4))
def test_it_agrees_with_the_formula_of_vbench(seed):
    frames = np.random.default_rng(seed).integers(0, 256, (7, 30, 44, 3), dtype=np.uint8)
    assert temporal_flickering(frames) == pytest.approx(plain_flickering(frames), abs=1e-6)


def test_floats_count_as_their_8_bit_levels(pair):
    video, _ = pair
    levels = np.rint(video * 255).astype(np.uint8)
    assert temporal_flickering(video) == temporal_flickering(levels)


def test_still_videos_have_one_and_alternating_black_and_white_zero():
    still = np.full((3, 16, 16, 3), 90, np.uint8)
    assert temporal_flickering(still) == 1.0
    still[1] = 255
    still[::2] = 0
    assert temporal_flickering(still) == 0.0


def test_each_frame_is_compared_with_the_one_before():
    frames = np.zeros((3, 16, 16, 3), np.uint8)
    frames[2] = 51
    assert [temporal_flickering(frames[:2]), temporal_flickering(frames[1:])] == pytest.approx([1.0, 0.8])
    assert temporal_flickering(frames) == pytest.approx(0.9)


def test_a_single_frame_is_refused():
    with pytest.raises(ValueError, match="1 frames: expected at least 2"):
        temporal_flickering(np.zeros((1, 16, 16, 3)))
