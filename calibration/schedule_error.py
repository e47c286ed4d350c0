"""The error of the final latent under a schedule of full steps, from recordings alone: no tensor is needed."""

from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from galaxydit.calibration.recording import Recording, as_differences
from galaxydit.profiles.schema import ErrorPropagation

HALF_COHERENT = 0.05  # rms error of the final latent, in units of the initial noise, at which coherence is 1/2

Array = NDArray[np.float64]
Coefficients = tuple[tuple[float, float], ...]
"""For each full step the first- and second-order extrapolation coefficients of the predictions that follow it."""


class ScheduleError:
    """Evaluates schedules of full steps on recorded generations.

    In the reuse interval between the full steps a and b, a prediction p_i replaces the guided prediction y_i. With the
    scheduler's linear response w_i the latent is off by

        d(a, b) = sum over a < i < b of w_i (p_i - y_i)

    All p_i of an interval extrapolate the same cached steps, so their errors are nearly parallel and are added as
    vectors. Errors of different intervals are partly coherent and can cancel: `coherence` is the share of their
    products that counts.

    A second transformer has none of the first one's steps cached, so schedules compute its first step, `switch`.
    """

    def __init__(self, recordings: Sequence[Recording]) -> None:
        self.sigmas = recordings[0].sigmas
        self.scheduler_response = recordings[0].scheduler_response
        self.switch = recordings[0].switch
        self.products = np.array([recording.guided_products for recording in recordings])
        self.mean_products = self.products.mean(axis=0)
        self.terms = cache(self._terms)

    def _terms(self, cached_steps: tuple[int, ...], following: int) -> Array:
        """Terms of d(cached_steps[-1], following) as coefficients of the differences of y, `(3, steps - 1)`.

        Row 0 is the error of repeating the newest cached step. Rows 1 and 2 are what the first- and second-order terms
        of Newton's polynomial through the last three cached steps add; they are 0 where there are too few.
        """
        sigmas, steps = self.sigmas, len(self.sigmas)
        terms = np.zeros((3, steps))
        newest, *earlier = cached_steps[::-1]
        earlier = [step for step in earlier if (step < self.switch) == (newest < self.switch)]
        for step in range(newest + 1, following):
            response = self.scheduler_response[step]
            terms[0, newest] += response
            terms[0, step] -= response
            ahead, slope = sigmas[step] - sigmas[newest], np.zeros(steps)
            if earlier:
                slope = _slope(sigmas, steps, earlier[0], newest)
                terms[1] += response * ahead * slope
            if len(earlier) > 1:
                bend = (slope - _slope(sigmas, steps, earlier[1], earlier[0])) / (sigmas[newest] - sigmas[earlier[1]])
                terms[2] += response * ahead * (sigmas[step] - sigmas[earlier[0]]) * bend
        return np.array([as_differences(row) for row in terms])

    def interval_terms(self, full: Sequence[int], propagation: ErrorPropagation) -> tuple[list[int], Array]:
        """The reuse intervals of the schedule `full`.

        Returns the indices into `full` of the full steps that start an interval, and the terms of each interval times
        the sensitivity of the final latent at its start, `(intervals, 3, steps - 1)`.
        """
        where = [index for index in range(len(full) - 1) if full[index + 1] > full[index] + 1]
        rows = [
            propagation.sensitivity(self.sigmas[full[i]]) * self.terms(tuple(full[max(0, i - 2) : i + 1]), full[i + 1])
            for i in where
        ]
        return where, np.array(rows).reshape(len(rows), 3, len(self.sigmas) - 1)

    def coherence(self, terms: Array) -> float:
        """Coherence of the errors of different intervals, 1 / (1 + (e / 0.05)^2), in (0, 1].

        e is the rms error of the final latent at order 1 with incoherent intervals. The model's nonlinear response
        grows with e^2 and is incoherent across intervals, so only the linear fraction adds coherently.
        """
        errors = terms[:, :2].sum(axis=1)
        incoherent = float(np.sum((errors @ self.mean_products) * errors))
        return 1 / (1 + max(0.0, incoherent) / HALF_COHERENT**2)

    def final_error(
        self,
        full: Sequence[int],
        propagation: ErrorPropagation,
        coefficients: Coefficients | None = None,
        *,
        coherence: float | None = None,
    ) -> Array:
        """Expected mean square error of the final latent under the schedule `full`, `(recordings,)`.

        `coefficients` default to order 1, that is (1, 0) everywhere, and `coherence` to that of the schedule.
        """
        where, terms = self.interval_terms(full, propagation)
        factors = np.array([(1.0, *(coefficients[index] if coefficients else (1.0, 0.0))) for index in where])
        errors = np.einsum("gt,gtj->gj", factors.reshape(-1, 3), terms)
        total = errors.sum(axis=0)
        incoherent = ((errors @ self.products) * errors).sum(axis=(1, 2))
        coherent = self.products @ total @ total
        if coherence is None:
            coherence = self.coherence(terms)
        return np.maximum(0.0, (1 - coherence) * incoherent + coherence * coherent)


def _slope(sigmas: Sequence[float], steps: int, older: int, newer: int) -> Array:
    """Divided difference in sigma between two steps, as coefficients of y, `(steps,)`."""
    coefficients = np.zeros(steps)
    coefficients[newer] = 1 / (sigmas[newer] - sigmas[older])
    coefficients[older] = -coefficients[newer]
    return coefficients
