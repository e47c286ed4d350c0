"""Peak signal-to-noise ratio."""

import math

import numpy as np

from galaxydit.eval.metrics.metric import Metric, Score, Video, float_pair


def _measure(video: Video, reference: Video | None, prompt: str) -> Score:
    difference = np.subtract(*float_pair(video, reference), dtype=np.float64)
    errors = np.mean(difference**2, axis=(1, 2, 3))
    return Score(_decibels(float(errors.mean())), np.array([_decibels(error) for error in errors]))


def _decibels(mean_squared_error: float) -> float:
    return math.inf if mean_squared_error == 0 else -10 * math.log10(mean_squared_error)


PSNR = Metric(
    name="psnr",
    title="PSNR",
    unit="dB",
    low=0.0,
    high=math.inf,
    higher_is_better=True,
    needs_reference=True,
    function=_measure,
)


def psnr(video: Video, reference: Video) -> float:
    """Peak signal-to-noise ratio in dB, higher is closer: 10 log10(1 / MSE), the MSE taken over all frames at once.

    From 0 for black against white to infinity for equal videos. The mean over the whole video comes before the
    logarithm, so that a few perfect frames cannot hide bad ones. Raises ValueError for bad or unequal shapes.
    """
    return PSNR(video, reference).value
