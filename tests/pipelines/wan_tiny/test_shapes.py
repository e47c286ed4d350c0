"""Shapes are named on clips of the varied world, whose captions are known."""

import numpy as np
import pytest

from galaxydit.pipelines.wan_tiny.shapes import observed_shape, shape_agreement
from galaxydit.pipelines.wan_tiny.tools import varied_drawing
from galaxydit.pipelines.wan_tiny.world import SHAPES


def test_nearly_all_shapes_of_drawn_clips_are_named():
    found = []
    for index in range(24):
        caption, frames = varied_drawing.draw_clip(index, seed=7, held_out=True)
        found += shape_agreement(frames, caption)
    assert np.mean(found) >= 0.95


@pytest.mark.parametrize("shape", SHAPES)
def test_another_word_for_the_shape_is_not_agreed_with(shape):
    stamp = varied_drawing.shape_stamp(shape, 7).repeat(4, axis=0).repeat(4, axis=1)
    mask = np.zeros((5, 64, 64), bool)
    mask[:, 10:38, 20:48] = stamp
    assert observed_shape(mask, np.zeros_like(mask)) == shape


def test_nothing_and_specks_are_unclear():
    mask = np.zeros((5, 64, 64), bool)
    assert observed_shape(mask, mask) == "unclear"
    mask[:, 20:26, 20:26] = True
    assert observed_shape(mask, np.zeros_like(mask)) == "unclear"


def test_frames_in_which_another_object_covers_a_part_do_not_count():
    mask = np.zeros((5, 64, 64), bool)
    mask[:, 10:38, 20:48] = True
    others = np.zeros_like(mask)
    stamp = varied_drawing.shape_stamp("triangle", 7).repeat(4, axis=0).repeat(4, axis=1)
    mask[:3, 10:38, 20:48] = stamp
    others[:3, 10:38, 20:48] = ~stamp
    assert observed_shape(mask, others) == "square"
