"""Extrapolation coefficients of a schedule, by ridge regression on recordings."""

from collections.abc import Sequence

import numpy as np

from galaxydit.calibration.recording import Recording, round_digits
from galaxydit.calibration.schedule_error import Coefficients, ScheduleError
from galaxydit.profiles.schema import ErrorPropagation

RIDGES = (0.1, 1.0, 10.0)  # ridge strengths towards order 1, relative to each term's own square
FOLDS = 4


def fit_coefficients(
    model: ScheduleError, full: Sequence[int], propagation: ErrorPropagation, ridge: float = RIDGES[0]
) -> tuple[Coefficients, float]:
    """Fit the coefficients with the least final error, averaged over the recordings of `model`.

    `ScheduleError.final_error` is a quadratic form in all coefficients of a schedule, so one linear system gives them
    jointly. The ridge penalty of strength `ridge` pulls poorly determined coefficients towards order 1, (1, 0).

    Returns coefficients for each step of `full`, and their final error (mean square). Full steps that start no reuse
    interval take the coefficients of a neighbour, because schedules of other lengths interpolate them.
    """
    where, terms = model.interval_terms(full, propagation)
    if not where:
        return ((1.0, 0.0),) * len(full), 0.0
    rows = terms.reshape(-1, terms.shape[2])
    interval, is_free = np.repeat(np.arange(len(where)), 3), np.tile([False, True, True], len(where))
    share = np.where(interval[:, None] == interval[None, :], 1.0, model.coherence(terms))
    products = share * (rows @ model.mean_products @ rows.T)
    square, against = products[is_free][:, is_free], products[is_free][:, ~is_free].sum(axis=1)
    order_1 = np.tile([1.0, 0.0], len(where))
    # A term without enough cached steps is 0; its coefficient stays at order 1.
    penalty = np.where(np.diag(square) > 0, ridge * np.diag(square), 1.0)
    solution = np.linalg.solve(square + np.diag(penalty), penalty * order_1 - against).reshape(-1, 2)
    fitted = [(round_digits(first, 6), round_digits(second, 6)) for first, second in solution]
    nearest = np.maximum(0, np.searchsorted(where, np.arange(len(full)), side="right") - 1)
    factors = np.array([(1.0, *pair) for pair in fitted]).ravel()
    return tuple(fitted[index] for index in nearest), max(0.0, float(factors @ products @ factors))


def choose_ridge(recordings: Sequence[Recording], full: Sequence[int], propagation: ErrorPropagation) -> float | None:
    """The ridge strength with the least final error in fourfold cross-validation; None where order 1 is better."""
    errors: dict[float | None, float] = dict.fromkeys((None, *reversed(RIDGES)), 0.0)
    folds = min(FOLDS, len(recordings))
    for fold in range(folds):
        training = ScheduleError([recording for index, recording in enumerate(recordings) if index % folds != fold])
        held_out = ScheduleError(recordings[fold::folds])
        for ridge in errors:
            coefficients = None if ridge is None else fit_coefficients(training, full, propagation, ridge)[0]
            errors[ridge] += float(held_out.final_error(full, propagation, coefficients).sum())
    return min(errors, key=lambda ridge: errors[ridge])
