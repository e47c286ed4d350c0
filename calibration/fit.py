"""The monotone map from proxy distance to expected error of the guided prediction, fitted to recordings."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression
from scipy.stats import spearmanr

from galaxydit.calibration.recording import Recording
from galaxydit.error_map import Curve, ErrorMap
from galaxydit.profile import Fit

GAPS = (1, 2, 3, 4, 5, 6)
GAPS_BEFORE = (1, 2, 3, 4)
FIRST_STEP = 2
GROUPS = 12
SIGMA_BINS = 5
WORTH_IT = 0.02

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Points:
    """Distances since the last full step, noise levels, and true errors of the prediction made there."""

    distance: Array
    sigma: Array
    error: Array

    def __add__(self, other: "Points") -> "Points":
        return Points(
            np.concatenate([self.distance, other.distance]),
            np.concatenate([self.sigma, other.sigma]),
            np.concatenate([self.error, other.error]),
        )


def points_of(recording: Recording, proxy: str, order: int) -> Points:
    """Every reuse that could have happened in a recording: 1 to 6 steps after a full step."""
    distances, sigmas, errors = [], [], []
    for gap in GAPS:
        distance = recording.accumulated(proxy, gap)
        for gap_before in GAPS_BEFORE if order else (1,):
            error = recording.prediction_error(order, gap, gap_before)
            known = np.isfinite(error) & np.isfinite(distance)
            known[: FIRST_STEP + gap] = False
            distances.append(distance[known])
            errors.append(error[known])
            sigmas.append(np.array(recording.sigmas)[known])
    return Points(np.concatenate(distances), np.concatenate(sigmas), np.concatenate(errors))


def fit_error_map(recordings: Sequence[Recording], proxy: str, order: int) -> tuple[ErrorMap, Fit]:
    """The map, and how much of the error it explains on samples it was not fitted to.

    Curves by noise level are used where they explain at least 2 % more of the variance there than one curve for all.
    """
    halves = [recordings[0::2], recordings[1::2]] if len(recordings) > 1 else [recordings, recordings]
    scores: list[tuple[float, float, float]] = []
    for fitted, held_out in ((halves[0], halves[1]), (halves[1], halves[0])):
        points, test = all_points(fitted, proxy, order), all_points(held_out, proxy, order)
        one, many = _fit(points, 1), _fit(points, SIGMA_BINS)
        guess = apply_map(many, test)
        scores.append(
            (r_squared(apply_map(one, test), test.error), r_squared(guess, test.error), _rho(guess, test.error))
        )
    r2_one, r2_many, rho = (round(float(value), 6) for value in np.mean(scores, axis=0))
    bins = SIGMA_BINS if r2_many > r2_one + WORTH_IT else 1
    return _fit(all_points(recordings, proxy, order), bins), Fit(r2_one, r2_many, rho)


def r_squared(guess: Array, truth: Array) -> float:
    """Share of the variance of `truth` that `guess` explains; below 0 where it is worse than the mean."""
    return float(1 - np.mean((truth - guess) ** 2) / max(float(np.var(truth)), 1e-30))


def fit_curve(points: Points) -> Curve:
    """Isotonic regression (scipy) of the mean errors of equally large groups by distance, weighted by their size."""
    order = np.argsort(points.distance, kind="stable")
    distances: list[float] = []
    groups: list[NDArray[np.int64]] = []
    for group in np.array_split(order, min(GROUPS, len(order))):
        mean = _round(max(1e-12, float(np.mean(points.distance[group]))))
        if distances and mean <= distances[-1]:  # many equal distances: they share one knot
            groups[-1] = np.concatenate([groups[-1], group])
        else:
            distances.append(mean)
            groups.append(group)
    errors = np.array([np.mean(points.error[group]) for group in groups])
    fitted = isotonic_regression(errors, weights=np.array([len(group) for group in groups], dtype=float)).x
    return Curve(
        sigma=_round(np.mean(points.sigma)),
        distances=tuple(distances),
        errors=tuple(_round(value) for value in fitted),
        spread=tuple(_round(np.std(points.error[group])) for group in groups),
    )


def _fit(points: Points, bins: int) -> ErrorMap:
    order = np.argsort(points.sigma, kind="stable")
    curves = [
        fit_curve(Points(points.distance[part], points.sigma[part], points.error[part]))
        for part in np.array_split(order, bins)
    ]
    return ErrorMap("distances", tuple(curves))


def apply_map(error_map: ErrorMap, points: Points) -> Array:
    """The expected error at each point."""
    return np.array([error_map(d, s) for d, s in zip(points.distance.tolist(), points.sigma.tolist(), strict=True)])


def all_points(recordings: Sequence[Recording], proxy: str, order: int) -> Points:
    """The points of all recordings."""
    total = points_of(recordings[0], proxy, order)
    for recording in recordings[1:]:
        total = total + points_of(recording, proxy, order)
    return total


def _rho(first: Array, second: Array) -> float:
    return float(spearmanr(first, second).statistic) if np.ptp(first) > 0 else 0.0


def _round(value: Any) -> float:
    return float(f"{float(value):.7g}")
