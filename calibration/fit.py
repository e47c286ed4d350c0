"""Monotone regression from proxy distance to the error of reuse.

A point is a step that is predicted from given full steps: its proxy distance since the last one, its noise level, and
its error of reuse. Arrays of points are `(3, points)`.
"""

from collections.abc import Sequence

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


def points_of(recordings: Sequence[Recording], proxy: str, order: int) -> Array:
    """The points of `proxy`: one for each gap since the last full step and, at order 1, between the last two."""
    # At order 0, a prediction repeats the last full step alone.
    gaps_before = GAPS_BEFORE if order else (1,)
    rows: list[Array] = []
    for recording in recordings:
        for gap in GAPS:
            distance = recording.accumulated(proxy, gap)
            for gap_before in gaps_before:
                error = recording.rounded.prediction_error(order, gap, gap_before)
                known = np.isfinite(error) & np.isfinite(distance)
                known[: FIRST_STEP + gap] = False
                rows.append(np.stack([distance, recording.sigmas, error])[:, known])
    return np.concatenate(rows, axis=1)


def fit_error_map(recordings: Sequence[Recording], proxy: str, order: int) -> tuple[ErrorMap, Fit | None]:
    """The error map of a proxy, and its scores by twofold cross-validation over recordings.

    It has one curve for all noise levels, or five by noise level if they explain over 0.02 more of the held-out
    variance. A single recording gives one curve and no scores.
    """
    if len(recordings) == 1:
        return _fit(points_of(recordings, proxy, order), 1), None
    even, odd = recordings[0::2], recordings[1::2]
    scores: list[tuple[float, float, float]] = []
    for training, held_out in ((even, odd), (odd, even)):
        points = points_of(training, proxy, order)
        distance, sigma, error = points_of(held_out, proxy, order)
        one_curve = np.vectorize(_fit(points, 1), otypes=[float])(distance, sigma)
        expected = np.vectorize(_fit(points, SIGMA_BINS), otypes=[float])(distance, sigma)
        rho = 0.0
        if np.ptp(expected) > 0:
            rho = spearmanr(expected, error).statistic
        scores.append((r_squared(one_curve, error), r_squared(expected, error), rho))
    r2_one, r2_many, rho = (round(float(value), 6) for value in np.mean(scores, axis=0))
    bins = 1
    if r2_many > r2_one + MINIMUM_GAIN:
        bins = SIGMA_BINS
    return _fit(points_of(recordings, proxy, order), bins), Fit(r2_one, r2_many, rho)


def r_squared(predicted: Array, measured: Array) -> float:
    """Share of the variance of `measured` that `predicted` explains; negative if the mean explains more."""
    return float(1 - np.mean((measured - predicted) ** 2) / max(float(np.var(measured)), 1e-30))


def fit_curve(points: Array) -> Curve:
    """The expected error by proxy distance: isotonic regression of the mean errors of 12 equal groups of points."""
    distance, sigma, error = points
    order = np.argsort(distance, kind="stable")
    distances: list[float] = []
    groups: list[NDArray[np.int64]] = []
    for group in np.array_split(order, min(GROUPS, len(order))):
        mean = round_digits(max(1e-12, float(np.mean(distance[group]))))
        if distances and mean <= distances[-1]:  # groups of equal distances share one knot
            groups[-1] = np.concatenate([groups[-1], group])
        else:
            distances.append(mean)
            groups.append(group)
    means = []
    spread = []
    for group in groups:
        means.append(np.mean(error[group]))
        spread.append(round_digits(np.std(error[group])))
    # An error that falls with the distance is noise of the points, so neighbours that do are pooled.
    fitted = isotonic_regression(means, weights=[float(len(group)) for group in groups]).x
    return Curve(
        sigma=round_digits(np.mean(sigma)),
        distances=tuple(distances),
        errors=tuple(map(round_digits, fitted)),
        spread=tuple(spread),
    )


def _fit(points: Array, bins: int) -> ErrorMap:
    """The error map with a curve for each of `bins` equal groups of points; equal mean noise levels share one."""
    groups: dict[float, list[NDArray[np.int64]]] = {}
    for part in np.array_split(np.argsort(points[1], kind="stable"), bins):
        groups.setdefault(round_digits(np.mean(points[1, part])), []).append(part)
    curves = []
    for parts in groups.values():
        curves.append(fit_curve(points[:, np.concatenate(parts)]))
    return ErrorMap(tuple(curves))
