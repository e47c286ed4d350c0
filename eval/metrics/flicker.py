"""Temporal flickering without a model, as VBench measures it."""

from itertools import pairwise

import numpy as np

from galaxydit.eval.metrics.metric import Metric, Score, Shape, Video, mean_score
from galaxydit.pipelines.video import to_uint8


def _measure(video: Video, reference: Video | None, prompt: str) -> Score:
    # One pair at a time: the differences of a whole large video would need gigabytes.
    frames = to_uint8(video)
    changes = [float(np.abs(np.subtract(b, a, dtype=np.int16)).mean()) for a, b in pairwise(frames)]
    return mean_score(np.array([np.nan, *(1 - np.array(changes) / 255)]))


def _refusal(shape: Shape, prompt: str) -> str | None:
    return None if shape[0] > 1 else f"the video has {shape[0]} frame, allowed are 2 or more"


TEMPORAL_FLICKERING = Metric(
    name="temporal_flickering",
    title="temporal flickering",
    low=0.0,
    high=1.0,
    higher_is_better=True,
    needs_reference=False,
    function=_measure,
    refusal=_refusal,
)


def temporal_flickering(video: Video) -> float:
    """1 less the mean absolute change from frame to frame of the 8-bit levels, by 255; from 0 to 1, a still video.

    The same number as VBench's dimension of this name, before normalisation and without its filter that keeps still
    scenes only (Huang et al. 2024, arXiv 2311.17982). Motion lowers it too: compare variants of the same video. Frame i
    is compared with frame i - 1, so the first has no value. Raises ValueError for a bad shape and for a single frame.
    """
    return TEMPORAL_FLICKERING(video).value
