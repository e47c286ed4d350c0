"""Agreement of a video of wan-tiny's world with its caption."""

from galaxydit.eval.metrics.metric import Metric, Shape, Video
from galaxydit.pipelines.wan_tiny.detect import MIN_FRAMES, caption_agreement
from galaxydit.pipelines.wan_tiny.world import parse_caption


def _measure_colours(video: Video, reference: Video | None, prompt: str) -> float:
    return caption_agreement(video, prompt).colour_share


def _measure_motions(video: Video, reference: Video | None, prompt: str) -> float:
    return caption_agreement(video, prompt).motion_share


def _refusal(shape: Shape, prompt: str) -> str | None:
    if shape[0] < MIN_FRAMES:
        return f"the video has {shape[0]} frames, allowed are {MIN_FRAMES} or more"
    try:
        parse_caption(prompt)
    except ValueError as error:
        return str(error)
    return None


CAPTION_COLOURS = Metric(
    "caption_colours", "caption: colours", _measure_colours, needs_reference=False, refusal=_refusal
)
"""Share of the caption's objects, from 0 to 1, whose colour `pipelines/wan_tiny/detect.py` finds.

Raises ValueError for a bad shape, for under 5 frames and for a caption that the world's grammar does not produce.
"""
CAPTION_MOTIONS = Metric(
    "caption_motions", "caption: motions", _measure_motions, needs_reference=False, refusal=_refusal
)
"""Share of the caption's objects, from 0 to 1, that are found and move, or stand still, as the caption says.

Source and errors as in `CAPTION_COLOURS`.
"""
