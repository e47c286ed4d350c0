"""Monotone regression from proxy distance to the error of reuse.

The error of reuse is the relative L2 error of a reused step's guided prediction (the transformer's output after
guidance). The data are points: a point is a step that is predicted from given full steps, with its proxy distance since
the last full step, its noise level and its error of reuse. The order of prediction is 0 if a reused step repeats the
last full step, and 1 if it extrapolates the last two.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression
from scipy.stats import spearmanr

from galaxydit.calibration.recording import Array, Recording, round_digits
from galaxydit.policies.error_map import Curve, ErrorMap
from galaxydit.profiles.evidence import Fit

GAPS = (1, 2, 3, 4, 5, 6)  # steps since the last full step
GAPS_BEFORE = (1, 2, 3, 4)  # steps between the last two full steps
FIRST_STEP = 2  # earliest full step that is reused in the fit
GROUPS = 12  # knots of a curve
SIGMA_BINS = 5  # curves, if there is one for each group of noise levels
MINIMUM_GAIN = 0.02  # increase of R² from which several curves replace a single one


@dataclass(frozen=True)
class Points:
    """The data of the regression, one entry for each point (see the module), `(points,)` each.

    Attributes:
        distance: proxy distance since the last full step.
        sigma: noise level of the predicted step.
        error: error of reuse.
    """

    distance: Array
    sigma: Array
    error: Array

    def __getitem__(self, part: NDArray[np.int64]) -> "Points":
        return Points(self.distance[part], self.sigma[part], self.error[part])


def points_of(recordings: Sequence[Recording], proxy: str, order: int) -> Points:
    """The points of `proxy`: at `order` 0 up to 6 for each step of the recordings, at order 1 up to 24.

    At order 0 there is a point for each gap of 1 to 6 steps from the last full step to the step. At order 1 there is
    one for each pair of such a gap and a gap of 1 to 4 steps between the last two full steps. The last full step is
    step 2 or later, counted from 0, and all full steps of a point belong to the transformer of the step.
    """
    rows: list[Array] = []
    for recording in recordings:
        for gap in GAPS:
            distance = recording.accumulated(proxy, gap)
            for gap_before in GAPS_BEFORE if order else (1,):
                error = recording.rounded.prediction_error(order, gap, gap_before)
                known = np.isfinite(error) & np.isfinite(distance)
                known[: FIRST_STEP + gap] = False
                rows.append(np.stack([distance, recording.sigmas, error])[:, known])
    return Points(*np.concatenate(rows, axis=1))


def fit_error_map(recordings: Sequence[Recording], proxy: str, order: int) -> tuple[ErrorMap, Fit | None]:
    """The error map of a proxy, fitted to all recordings, and its scores by twofold cross-validation over recordings.

    The map gives the expected error of reuse by proxy distance and noise level; the scores are R² and a rank
    correlation. The map is one curve for all noise levels. It has five curves by noise level instead if they explain
    more of the error's variance in held-out recordings, by more than 0.02 of that variance. A single recording gives
    one curve and no scores.
    """
    if len(recordings) == 1:
        return _fit(points_of(recordings, proxy, order), 1), None
    even, odd = recordings[0::2], recordings[1::2]
    scores: list[tuple[float, float, float]] = []
    for training, held_out in ((even, odd), (odd, even)):
        points, test = points_of(training, proxy, order), points_of(held_out, proxy, order)
        one_curve, expected = (
            np.vectorize(_fit(points, bins), otypes=[float])(test.distance, test.sigma) for bins in (1, SIGMA_BINS)
        )
        rho = spearmanr(expected, test.error).statistic if np.ptp(expected) > 0 else 0.0
        scores.append((r_squared(one_curve, test.error), r_squared(expected, test.error), rho))
    r2_one, r2_many, rho = (round(float(value), 6) for value in np.mean(scores, axis=0))
    bins = SIGMA_BINS if r2_many > r2_one + MINIMUM_GAIN else 1
    return _fit(points_of(recordings, proxy, order), bins), Fit(r2_one, r2_many, rho)


def r_squared(predicted: Array, measured: Array) -> float:
    """Share of the variance of `measured` that `predicted` explains; negative if the mean explains more."""
    return float(1 - np.mean((measured - predicted) ** 2) / max(float(np.var(measured)), 1e-30))


def fit_curve(points: Points) -> Curve:
    """The expected error by proxy distance, one curve for all points whatever their noise level.

    `Curve.sigma` is the mean noise level of the points; their errors are not adjusted to it. The points are divided by
    distance into 12 equally large groups. Isotonic regression (scipy) of the mean errors of the groups on their mean
    distances, weighted by group size, gives the curve. `Curve.spread` is the standard deviation of the errors in each
    group.
    """
    order = np.argsort(points.distance, kind="stable")
    distances: list[float] = []
    groups: list[NDArray[np.int64]] = []
    for group in np.array_split(order, min(GROUPS, len(order))):
        mean = round_digits(max(1e-12, float(np.mean(points.distance[group]))))
        if distances and mean <= distances[-1]:  # groups of equal distances share one knot
            groups[-1] = np.concatenate([groups[-1], group])
        else:
            distances.append(mean)
            groups.append(group)
    errors = np.array([np.mean(points.error[group]) for group in groups])
    fitted = isotonic_regression(errors, weights=np.array([len(group) for group in groups], dtype=float)).x
    return Curve(
        sigma=round_digits(np.mean(points.sigma)),
        distances=tuple(distances),
        errors=tuple(map(round_digits, fitted)),
        spread=tuple(round_digits(np.std(points.error[group])) for group in groups),
    )


def _fit(points: Points, bins: int) -> ErrorMap:
    """The error map with one curve (`fit_curve`) for each of `bins` equally large groups of points by noise level.

    Groups with the same mean noise level share a curve.
    """
    groups: dict[float, list[NDArray[np.int64]]] = {}
    for part in np.array_split(np.argsort(points.sigma, kind="stable"), bins):
        groups.setdefault(round_digits(np.mean(points.sigma[part])), []).append(part)
    return ErrorMap(tuple(fit_curve(points[np.concatenate(parts)]) for parts in groups.values()))
