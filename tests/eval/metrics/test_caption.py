import numpy as np
import pytest

from galaxydit.eval.metrics import METRICS
from galaxydit.eval.metrics.caption import CAPTION_COLOURS, CAPTION_MOTIONS
from galaxydit.pipelines.wan_tiny.tools.drawing import render
from galaxydit.pipelines.wan_tiny.world import parse_caption


def caption_colours(video, prompt):
    return CAPTION_COLOURS(video, prompt=prompt)


def caption_motions(video, prompt):
    return CAPTION_MOTIONS(video, prompt=prompt)


CAPTION = "a red ball moves right and a blue square grows over a plain background"


def clip() -> np.ndarray:
    return render(parse_caption(CAPTION), np.random.default_rng(0))


def test_a_clip_drawn_from_its_caption_agrees_with_it():
    assert caption_colours(clip(), CAPTION) == 1.0
    assert caption_motions(clip(), CAPTION) == 1.0


def test_each_wrong_object_costs_its_share():
    wrong_motion = CAPTION.replace("moves right", "moves left")
    assert caption_colours(clip(), wrong_motion) == 1.0
    assert caption_motions(clip(), wrong_motion) == 0.5
    wrong_colour = CAPTION.replace("red", "green")
    assert caption_colours(clip(), wrong_colour) == 0.5
    assert caption_motions(clip(), wrong_colour) == 0.5


@pytest.mark.parametrize("name", ["caption_colours", "caption_motions"])
def test_other_prompts_and_short_clips_are_refused_with_the_reason(name):
    assert "over a B background" in METRICS[name].refusal((9, 64, 64, 3), "a cat")
    assert "4 frames: expected at least 5" in METRICS[name].refusal((4, 64, 64, 3), CAPTION)
    assert METRICS[name].refusal((9, 64, 64, 3), CAPTION) is None
