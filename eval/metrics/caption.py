"""Agreement of a video of wan-tiny with its caption, as `pipelines/wan_tiny/detect.py` detects it."""

from functools import partial
from statistics import fmean

from galaxydit.eval.metrics.metric import Metric
from galaxydit.pipelines.wan_tiny.detect import MIN_FRAMES, caption_agreement
from galaxydit.pipelines.wan_tiny.world import parse_caption

_of_caption = partial(Metric, needs_reference=False, min_frames=MIN_FRAMES, check_prompt=parse_caption)

CAPTION_COLOURS = _of_caption(
    name="caption_colours",
    title="caption: colours",
    function=lambda video, reference, prompt: fmean(each.colour_found for each in caption_agreement(video, prompt)),
)
"""Share of the caption's objects, from 0 to 1, whose colour is detected."""

CAPTION_MOTIONS = _of_caption(
    name="caption_motions",
    title="caption: motions",
    function=lambda video, reference, prompt: fmean(each.motion_found for each in caption_agreement(video, prompt)),
)
"""Share of the caption's objects, from 0 to 1, that are detected and move, or stand still, as the caption says."""
