"""The detector against the world's own clips, whose captions are true by construction, clean and degraded."""

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from scipy import ndimage

from galaxydit.pipelines.wan_tiny import world
from galaxydit.pipelines.wan_tiny.detect import ClauseAgreement, caption_agreement
from galaxydit.pipelines.wan_tiny.tools import drawing
from galaxydit.pipelines.wan_tiny.world import Scene, parse_caption

CLIPS = 300
SEED = 2024


def as_drawn(frames, rng):
    return frames


def blurred_and_noisy(frames, rng):
    """About what a mediocre autoencoder does."""
    blurred = ndimage.gaussian_filter(frames, (0, 1, 1, 0))
    return np.clip(blurred + rng.normal(0, 0.03, frames.shape), 0, 1)


def with_other_motions(scene, rng):
    objects = [
        replace(clause, motion=str(rng.choice([motion for motion in world.MOTIONS if motion != clause.motion])))
        for clause in scene.objects
    ]
    return Scene(tuple(objects), scene.background).caption


def with_other_colours(scene, rng):
    absent = [colour for colour in world.COLOURS if colour not in {clause.colour for clause in scene.objects}]
    colours = rng.permutation(absent)[: len(scene.objects)]
    objects = [replace(clause, colour=str(colour)) for clause, colour in zip(scene.objects, colours, strict=True)]
    return Scene(tuple(objects), scene.background).caption


@pytest.fixture(scope="module")
def clips():
    return [drawing.draw_clip(index, SEED) for index in range(CLIPS)]


@pytest.fixture(scope="module", params=[as_drawn, blurred_and_noisy], ids=["as_drawn", "blurred_and_noisy"])
def findings(request, clips):
    """All clauses under the true captions; those of every second clip under other motions, of every sixth under other
    colours.
    """
    rng = np.random.default_rng(SEED)
    found: dict[str, list[ClauseAgreement]] = defaultdict(list)
    for index, (caption, clip) in enumerate(clips):
        frames, scene = request.param(clip, rng), parse_caption(caption)
        found["true"] += caption_agreement(frames, caption)
        if index % 2 == 0:
            found["other motions"] += caption_agreement(frames, with_other_motions(scene, rng))
        if index % 6 == 0:
            found["other colours"] += caption_agreement(frames, with_other_colours(scene, rng))
    return found


def test_the_true_colours_are_found(findings):
    assert np.mean([finding.colour_found for finding in findings["true"]]) >= 0.98


@pytest.mark.parametrize("motion", [*world.MOTIONS, ""])
def test_each_true_motion_is_found(findings, motion):
    found = [finding.motion_found for finding in findings["true"] if finding.clause.motion == motion]
    assert len(found) >= 20
    assert np.mean(found) >= (0.8 if motion == "bounces" else 0.95)  # five poses do not show every bounce


@pytest.mark.parametrize("motion", world.MOTIONS)
def test_each_wrong_motion_is_refused(findings, motion):
    found = [finding.motion_found for finding in findings["other motions"] if finding.clause.motion == motion]
    assert len(found) >= 20
    assert np.mean(found) <= 0.05


def test_wrong_colours_are_refused_and_with_them_their_motions(findings):
    assert np.mean([finding.colour_found for finding in findings["other colours"]]) <= 0.05
    assert all(finding.colour_found for finding in findings["other colours"] if finding.motion_found)


def test_a_mirrored_clip_moves_the_other_way():
    scene = parse_caption("a red ball moves left over a dotted background")
    frames = drawing.render(scene, np.random.default_rng(0))
    assert caption_agreement(frames, scene.caption)[0].motion_found
    (mirrored,) = caption_agreement(frames[:, :, ::-1], scene.caption)
    assert (mirrored.colour_found, mirrored.motion_found) == (True, False)
    (backwards,) = caption_agreement(frames[::-1], scene.caption.replace("left", "right"))
    assert backwards.motion_found


def test_a_still_object_is_still_although_another_one_passes_over_it():
    scene = parse_caption("a red ball moves up in front of a blue square over a plain background")
    for seed in range(10):
        frames = drawing.render(scene, np.random.default_rng(seed))
        assert caption_agreement(frames, scene.caption)[1].motion_found
        passing = scene.caption.replace("a red ball moves up in front of a blue square", "a blue square {}")
        claimed = [caption_agreement(frames, passing.format(motion))[0].motion_found for motion in world.MOTIONS]
        assert not any(claimed)


@pytest.mark.parametrize("level", [0.0, 0.5, 1.0])
def test_nothing_is_found_in_an_empty_clip(level):
    frames = np.full((9, 64, 64, 3), level)
    agreement = caption_agreement(frames, "a red ball grows and a blue ball moves up over a plain background")
    assert not any(each.colour_found or each.motion_found for each in agreement)


def test_nothing_is_found_in_coloured_noise():
    frames = np.random.default_rng(0).uniform(size=(9, 64, 64, 3))
    for colour in world.COLOURS:
        assert not caption_agreement(frames, f"a {colour} ball grows over a plain background")[0].motion_found


def test_an_object_seen_in_few_frames_is_not_found():
    caption = "a green square moves down over a plain background"
    frames = drawing.render(parse_caption(caption), np.random.default_rng(1))
    frames[3:] = 0.5
    assert not caption_agreement(frames, caption)[0].colour_found


def test_bytes_and_floats_agree():
    caption, frames = drawing.draw_clip(3, SEED)
    assert caption_agreement(np.rint(frames * 255).astype(np.uint8), caption) == caption_agreement(frames, caption)


def test_bad_clips_and_captions_are_refused():
    frames = np.zeros((9, 64, 64, 3))
    caption = "a red ball grows over a plain background"
    with pytest.raises(ValueError, match=r"frames.shape=\(64, 64, 3\) is not allowed"):
        caption_agreement(frames[0], caption)
    with pytest.raises(ValueError, match="frames=4 is not allowed: expected at least 5"):
        caption_agreement(frames[:4], caption)
    with pytest.raises(ValueError, match="caption"):
        caption_agreement(frames, "a dog")
