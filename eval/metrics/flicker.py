"""VBench's temporal flickering, which needs no model."""

from itertools import pairwise
from statistics import fmean

import numpy as np

from galaxydit.eval.metrics.metric import Metric, Video
from galaxydit.pipelines.video import to_uint8


def _measure(video: Video, reference: Video | None, prompt: str) -> float:
    # One pair at a time, because the differences of a large video would take gigabytes.
    frames = to_uint8(video)
    changes = [float(np.abs(np.subtract(b, a, dtype=np.int16)).mean()) for a, b in pairwise(frames)]
    return 1 - fmean(changes) / 255


TEMPORAL_FLICKERING = Metric(
    name="temporal_flickering", title="temporal flickering", needs_reference=False, function=_measure, min_frames=2
)
"""1 - mean absolute change of the 8-bit levels between frames / 255; from 0 to 1, which means a still video.

Equal to VBench's dimension of this name before normalization, without its filter for still scenes (Huang et al.
2024, arXiv 2311.17982). Motion also lowers the value, so compare only variants of the same video.
"""
