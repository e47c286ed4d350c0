"""The captions of the toy world and the clips drawn for them."""

import numpy as np
import pytest

from galaxydit.pipelines.wan_tiny import world
from galaxydit.pipelines.wan_tiny.tools import drawing
from galaxydit.pipelines.wan_tiny.tools.drawing import draw_clip
from galaxydit.pipelines.wan_tiny.world import Clause, Scene, draw_prompts, draw_scene, parse_caption


@pytest.mark.parametrize("held_out", [False, True])
def test_captions_parse_back_into_their_scenes(held_out):
    rng = np.random.default_rng(0)
    kinds = set()
    for _ in range(500):
        scene = draw_scene(rng, held_out=held_out)
        assert parse_caption(scene.caption) == scene
        kinds.add((len(scene.objects), scene.objects[-1].motion == ""))
    assert kinds == {(1, False), (2, False), (2, True), (3, False)}


def test_captions_read_like_the_grammar():
    ball, square, triangle = (
        Clause("red", "ball", "orbits"),
        Clause("blue", "square", "moves left"),
        Clause("green", "triangle", ""),
    )
    assert Scene((ball,), "plain").caption == "a red ball orbits over a plain background"
    assert (
        Scene((square, triangle), "dotted").caption
        == "a blue square moves left in front of a green triangle over a dotted background"
    )
    assert (
        Scene((ball, square, Clause("cyan", "ball", "grows")), "cloudy").caption
        == "a red ball orbits, a blue square moves left and a cyan ball grows over a cloudy background"
    )


def test_training_never_shows_a_held_out_caption():
    shown = {draw_clip(index, seed=1)[0] for index in range(200)}
    unseen = draw_prompts(200, seed=1)
    assert not any(world.is_held_out(caption) for caption in shown)
    assert all(world.is_held_out(caption) for caption in unseen)
    assert shown.isdisjoint(unseen)
    assert all(world.is_held_out(draw_clip(index, seed=2, held_out=True)[0]) for index in range(50))


def test_held_out_captions_are_one_in_eight():
    rng = np.random.default_rng(3)
    colours, motions = list(world.COLOURS), list(world.MOTIONS)
    captions = {
        Scene((Clause(rng.choice(colours), rng.choice(world.SHAPES), rng.choice(motions)),), background).caption
        for background in world.BACKGROUNDS
        for _ in range(400)
    }
    assert np.mean([world.is_held_out(caption) for caption in captions]) == pytest.approx(1 / 8, abs=0.05)


def test_prompts_differ_from_each_other_and_depend_on_the_seed_alone():
    prompts = draw_prompts(100, seed=4)
    assert len(set(prompts)) == 100
    assert draw_prompts(100, seed=4) == prompts
    assert draw_prompts(30, seed=4) == prompts[:30]
    assert draw_prompts(100, seed=5) != prompts


def test_a_clip_depends_on_its_index_and_seed_alone():
    caption, frames = draw_clip(7, seed=1)
    draw_clip(8, seed=1)
    again_caption, again_frames = draw_clip(7, seed=1)
    assert again_caption == caption
    np.testing.assert_array_equal(again_frames, frames)
    assert not np.array_equal(draw_clip(7, seed=2)[1], frames)
    assert not np.array_equal(draw_clip(7, seed=1, held_out=True)[1], frames)


def test_training_shows_more_scenes_of_several_objects_than_prompts_do():
    shown = [len(parse_caption(draw_clip(index, seed=1)[0]).objects) for index in range(100)]
    asked = [len(parse_caption(caption).objects) for caption in draw_prompts(100, seed=1)]
    assert np.mean(shown) > np.mean(asked) + 0.2


def test_clips_are_float_frames_between_black_and_white():
    for index in range(20):
        _, frames = draw_clip(index, seed=6)
        assert frames.shape == (drawing.FRAMES, drawing.HEIGHT, drawing.WIDTH, 3)
        assert frames.dtype == np.float32
        assert frames.min() >= 0
        assert frames.max() <= 1


def test_the_object_named_first_is_in_front():
    scene = parse_caption("a red ball moves right in front of a blue square over a plain background")
    visible = []
    for seed in range(10):
        frames = drawing.render(scene, np.random.default_rng(seed))
        red = (frames[..., 0] > 0.5) & (frames[..., 2] < 0.4)
        blue = (frames[..., 2] > 0.5) & (frames[..., 0] < 0.4)
        visible.append((np.ptp(red.sum(axis=(1, 2))) / red.sum(axis=(1, 2)).max(), np.ptp(blue.sum(axis=(1, 2)))))
    assert all(change < 0.3 for change, _ in visible)  # only the frame's edge may cut the ball
    assert all(hidden > 20 for _, hidden in visible)


@pytest.mark.parametrize(
    ("caption", "named"),
    [
        ("a red ball orbits", "a red ball orbits"),
        ("a red ball orbits over a wooden background", "plain, striped, dotted, cloudy"),
        ("a purple ball orbits over a plain background", "a purple ball orbits"),
        ("a red cube orbits over a plain background", "a red cube orbits"),
        ("a red ball jumps over a plain background", "a red ball jumps"),
        ("a red ball over a plain background", "a red ball"),
        ("the red ball orbits over a plain background", "the red ball orbits"),
        ("a red ball orbits and a blue cube grows over a plain background", "a blue cube grows"),
        ("a red ball orbits in front of a blue ball grows over a plain background", "a blue ball grows"),
        ("a red ball orbits and a red square grows over a plain background", "names a colour twice"),
        ("a red ball grows, a blue ball grows over a plain background", "joins its parts"),
        ("a red ball grows and a blue ball grows and a cyan ball grows over a plain background", "joins its parts"),
        ("a red ball grows, a cyan ball grows in front of a blue ball over a plain background", "joins its parts"),
        ("", "''"),
    ],
)
def test_a_bad_caption_is_refused_with_the_part_that_does_not_fit(caption, named):
    with pytest.raises(ValueError, match="caption") as error:
        parse_caption(caption)
    assert named in str(error.value)
