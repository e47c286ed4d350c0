"""The varied world: valid captions, properties that vary from clip to clip, and objects that can be recognised."""

import hashlib

import numpy as np
import pytest

from galaxydit.pipelines.wan_tiny import world
from galaxydit.pipelines.wan_tiny.detect import caption_agreement
from galaxydit.pipelines.wan_tiny.tools import drawing, training_latents, varied_drawing
from galaxydit.pipelines.wan_tiny.tools.varied_drawing import draw_clip, draw_variation
from galaxydit.pipelines.wan_tiny.world import parse_caption

CLIPS = 60


@pytest.fixture(scope="module")
def clips():
    return [draw_clip(index, seed=2, held_out=True) for index in range(CLIPS)]


def test_a_clip_depends_on_its_index_and_seed_alone():
    caption, frames = draw_clip(7, seed=1)
    draw_clip(8, seed=1)
    again_caption, again_frames = draw_clip(7, seed=1)
    assert again_caption == caption
    np.testing.assert_array_equal(again_frames, frames)
    assert not np.array_equal(draw_clip(7, seed=2)[1], frames)
    assert not np.array_equal(draw_clip(7, seed=1, held_out=True)[1], frames)


def test_clips_are_float_frames_between_black_and_white(clips):
    for _, frames in clips:
        assert frames.shape == (drawing.FRAMES, drawing.HEIGHT, drawing.WIDTH, 3)
        assert frames.dtype == np.float32
        assert frames.min() >= 0
        assert frames.max() <= 1


def test_captions_follow_the_grammar_and_training_never_shows_a_held_out_one(clips):
    for caption, _ in clips:
        parse_caption(caption)
        assert world.is_held_out(caption)
    assert not any(world.is_held_out(draw_clip(index, seed=1)[0]) for index in range(CLIPS))


def test_contrast_spreads_over_clips(clips):
    contrasts = [frames.mean(axis=-1)[np.ptp(frames, axis=-1) < 0.1].std() for _, frames in clips]
    seen = [contrast for contrast in contrasts if contrast > 0.005]  # one leaf may fill the whole background
    assert len(seen) >= 0.9 * CLIPS
    assert np.log(seen).std() >= 0.4


def test_properties_cover_their_ranges_and_some_backgrounds_stand_still():
    rng = np.random.default_rng(0)
    drawn = [draw_variation(rng) for _ in range(400)]
    contrasts = [variation.background_contrast for variation in drawn]
    assert min(contrasts) < 1.2 * varied_drawing.BACKGROUND_CONTRAST[0]
    assert max(contrasts) > 0.8 * varied_drawing.BACKGROUND_CONTRAST[1]
    still = np.mean([variation.background_speed == 0 for variation in drawn])
    assert still == pytest.approx(varied_drawing.STILL_SHARE, abs=0.08)


def test_a_background_at_speed_0_stands_still():
    rng = np.random.default_rng(0)
    frames = varied_drawing.draw_background("cloudy", drawing.POSES, 16, 16, rng, speed=0.0)
    np.testing.assert_array_equal(frames, np.broadcast_to(frames[:1], frames.shape))


def test_the_detector_finds_colours_and_motions_of_drawn_clips(clips):
    found = [clause for caption, frames in clips for clause in caption_agreement(frames, caption)]
    assert np.mean([clause.colour_found for clause in found]) >= 0.98
    assert np.mean([clause.motion_found for clause in found]) >= 0.95


@pytest.mark.parametrize("shape", world.SHAPES)
def test_an_object_is_symmetric_and_shapes_differ_at_every_size(shape):
    for size in range(varied_drawing.SMALLEST_SIZE, 14):
        width = varied_drawing._size(shape, size / 2 / varied_drawing.CELLS)
        stamp = varied_drawing.shape_stamp(shape, width)
        np.testing.assert_array_equal(stamp, stamp[:, ::-1])
        assert stamp.any(axis=0).all()  # as wide as its size
        corners = stamp[[0, 0, -1, -1], [0, -1, 0, -1]]
        assert corners.all() == (shape == "square")


def test_an_object_partly_outside_the_frame_is_cut():
    stamp = varied_drawing.shape_stamp("square", 6)
    assert varied_drawing._place(stamp, 0.5, 0.5).sum() == 36
    assert varied_drawing._place(stamp, 0.0, 0.5).sum() == 18
    assert varied_drawing._place(stamp, 1.0, 1.0).sum() == 9


def test_the_first_world_is_what_the_shipped_model_was_trained_on():
    digest = hashlib.sha256()
    for index in range(8):
        frames = drawing.draw_clip(index, seed=1)[1]
        digest.update(np.rint(frames * 255).astype(np.uint8).tobytes())
    assert digest.hexdigest().startswith("0fc58508b088d2fc")


def test_a_third_of_the_training_clips_is_of_the_first_world():
    seed = training_latents.CLIP_SEED
    for index in range(6):
        caption, frames = training_latents.draw_training_clip(index, training_latents.World.VARIED)
        draw = drawing.draw_clip if index % 3 == 0 else draw_clip
        expected_caption, expected = draw(index, seed)
        assert caption == expected_caption
        np.testing.assert_array_equal(frames, expected)
        assert (
            training_latents.draw_training_clip(index, training_latents.World.FIRST)[0]
            == drawing.draw_clip(index, seed)[0]
        )
