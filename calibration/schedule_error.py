"""How far reuse moves the latent, from the recorded products of the guided prediction: no tensor is needed."""

from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from galaxydit.calibration.recording import Recording, in_changes
from galaxydit.propagation import Propagation

HALF_LASTS = 0.05  # root mean square error at the end, in units of the first noise; see README.md

Array = NDArray[np.float64]
Weights = tuple[tuple[float, ...], ...]
"""For each full step two numbers: what line and parabola weigh in the predictions that follow."""


class Drift:
    """What every schedule of full steps would have done to recorded generations.

    Between the full steps a and b of a generation, a prediction p_i stands for the guided prediction y_i, and the
    scheduler carries the difference into the latent with the weight w_i (`sampler.step_weights`):

        d(a, b) = sum over a < i < b of w_i (p_i - y_i)

    Differences within a gap point much the same way, as all come from the same full steps: so vectors are added up, not
    their lengths. Those of different gaps are related too, as trajectories bend alike all along, and what one gap does
    wrong another may undo. That lasts until the end as long as errors are so small that the model answers to them
    linearly: a share of their products counts (`lasting`).
    """

    def __init__(self, recordings: Sequence[Recording]) -> None:
        self.sigmas = recordings[0].sigmas
        self.step_weights = recordings[0].step_weights
        self.products = np.array([recording.guided_products for recording in recordings])
        self.mean_products = self.products.mean(axis=0)
        self.terms = cache(self._terms)

    def _terms(self, anchors: tuple[int, ...], following: int) -> Array:
        """The terms of d(anchors[-1], following) as weights of the changes of y, `(3, steps - 1)`.

        They are the drift of repeating the newest anchor, and what the line through the newest two and the parabola
        through three anchors add to it (Newton's form); 0 where there are not so many anchors.
        """
        sigmas, steps = self.sigmas, len(self.sigmas)
        terms = np.zeros((3, steps))
        newest, *earlier = anchors[::-1]
        for step in range(newest + 1, following):
            size = self.step_weights[step]
            terms[0, newest] += size
            terms[0, step] -= size
            ahead, slope = sigmas[step] - sigmas[newest], np.zeros(steps)
            if earlier:
                slope = _slope(sigmas, steps, earlier[0], newest)
                terms[1] += size * ahead * slope
            if len(earlier) > 1:
                bend = (slope - _slope(sigmas, steps, earlier[1], earlier[0])) / (sigmas[newest] - sigmas[earlier[1]])
                terms[2] += size * ahead * (sigmas[step] - sigmas[earlier[0]]) * bend
        return np.array([in_changes(row) for row in terms])

    def gaps(self, full: Sequence[int], propagation: Propagation) -> tuple[list[int], Array]:
        """The full steps (as indices into `full`) that reused ones follow, and for each the terms of its drift times
        the propagation's gain at its noise level: `(gaps, 3, steps - 1)`.
        """
        where = [index for index in range(len(full) - 1) if full[index + 1] > full[index] + 1]
        rows = [
            propagation.gain(self.sigmas[full[i]]) * self.terms(tuple(full[max(0, i - 2) : i + 1]), full[i + 1])
            for i in where
        ]
        return where, np.array(rows).reshape(len(rows), 3, len(self.sigmas) - 1)

    def lasting(self, terms: Array) -> float:
        """The share of the products between drifts of different `gaps` that counts at the end, 1 / (1 + (e / 0.05)^2).

        e is the root mean square error of the final latent at order 1 if gaps were unrelated. What the model answers
        beyond the linear grows with its square, and has no direction in common: so this is the linear part's share.
        """
        drifts = terms[:, :2].sum(axis=1)
        error = float(np.sum((drifts @ self.mean_products) * drifts))
        return 1 / (1 + max(0.0, error) / HALF_LASTS**2)

    def at_the_end(
        self,
        full: Sequence[int],
        propagation: Propagation,
        weights: Weights | None = None,
        *,
        lasting: float | None = None,
    ) -> Array:
        """Expected mean square error of the final latent for each recording, `(recordings,)`, if these steps are full.

        Without weights the line counts whole and the parabola not: order 1. Without `lasting` it is the schedule's own.
        """
        where, terms = self.gaps(full, propagation)
        shares = np.array([(1.0, *(weights[index] if weights else (1.0, 0.0))) for index in where]).reshape(-1, 3)
        drifts = np.einsum("gt,gtj->gj", shares, terms)
        together = drifts.sum(axis=0)
        apart = ((drifts @ self.products) * drifts).sum(axis=(1, 2))
        as_one = self.products @ together @ together
        if lasting is None:
            lasting = self.lasting(terms)
        return np.maximum(0.0, (1 - lasting) * apart + lasting * as_one)


def _slope(sigmas: Sequence[float], steps: int, older: int, newer: int) -> Array:
    """The slope in sigma between two steps, as weights of y."""
    weights = np.zeros(steps)
    weights[newer] = 1 / (sigmas[newer] - sigmas[older])
    weights[older] = -weights[newer]
    return weights
