"""The error of the final latent under a schedule of full steps, from recordings alone: no tensor is needed."""

from collections.abc import Sequence
from copy import copy
from functools import cache
from typing import Literal

import numpy as np

from galaxydit.calibration.recording import Array, Recording, as_differences, error_coefficients
from galaxydit.extrapolation import CORRECTED, missed
from galaxydit.profiles.evidence import ErrorPropagation

HALF_COHERENT = 0.05  # rms error of the final latent, in units of the initial noise, at which coherence is 1/2

Order = Literal[0, 1]


class ScheduleError:
    """Evaluates schedules of full steps on recorded generations.

    In the reuse interval between the full steps a and b, a prediction p_i replaces the guided prediction y_i. With w_i,
    the linear response of the final latent to y_i, the latent is then off by

        d(a, b) = (sum over a < i < b of w_i (p_i - y_i)) - w_b c (p_b - y_b)

    The last term is the correction of the full step b: c is `extrapolation.missed` times `extrapolation.CORRECTED`, and
    0 for the last step and without `corrects`. Errors of an interval add as vectors, because its predictions
    extrapolate the same steps. Schedules compute the step `switch`: a second transformer cannot reuse the first's.
    """

    def __init__(self, recordings: Sequence[Recording], corrects: bool = True) -> None:
        self.corrects = corrects
        self.sigmas = recordings[0].sigmas
        self.scheduler_response = recordings[0].scheduler_response
        self.switch = recordings[0].switch
        self.products = np.array([recording.guided_products for recording in recordings])
        self.mean_products = self.products.mean(axis=0)
        self.interval_error = cache(self._interval_error)

    def weighted(self, weights: Array) -> "ScheduleError":
        """The same with means over the recordings weighted by `weights`, `(recordings,)`."""
        other = copy(self)
        other.mean_products = np.tensordot(weights / weights.sum(), self.products, 1)
        return other

    def _interval_error(self, older: int | None, newest: int, following: int, order: Order) -> Array:
        """d(newest, following) as coefficients of the differences y_(i+1) - y_i, `(steps - 1,)`.

        If `older` is None or a step of the other transformer, the prediction repeats `newest`.
        """
        sigmas, response = self.sigmas, self.scheduler_response
        if older is None or (older < self.switch) != (newest < self.switch):
            older = None
        weights = {step: response[step] for step in range(newest + 1, following)}
        if self.corrects and weights and following < len(sigmas) - 1:
            share = CORRECTED[order if older is not None else 0]
            weights[following] = -response[following] * share * missed(sigmas, response, newest, following)
        error = np.zeros(len(sigmas))
        for step, weight in weights.items():
            error += weight * error_coefficients(sigmas, step, newest, older if order else None)
        return as_differences(error)

    def final_error(
        self, full: Sequence[int], propagation: ErrorPropagation, *, order: Order = 1, coherence: float | None = None
    ) -> Array:
        """Expected mean square error of the final latent under the schedule `full`, `(recordings,)`.

        `coherence` is by default 1 / (1 + (e / 0.05)^2) with the rms error e at coherence 0: the model's nonlinear
        response grows with e^2 and is incoherent across intervals, so only the linear fraction adds coherently.
        """
        intervals = zip((None, *full), full, full[1:], strict=False)
        weighted = [
            propagation.sensitivity(self.sigmas[newest]) * self.interval_error(older, newest, following, order)
            for older, newest, following in intervals
        ]
        errors = np.array(weighted)
        total = errors.sum(axis=0)
        incoherent = ((errors @ self.products) * errors).sum(axis=(1, 2))
        if coherence is None:
            coherence = 1 / (1 + max(0.0, float(incoherent.mean())) / HALF_COHERENT**2)
        return np.maximum(0.0, (1 - coherence) * incoherent + coherence * (self.products @ total @ total))
