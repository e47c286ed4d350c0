"""What the line and the parabola through the last full steps weigh in a prediction, fitted for a whole schedule."""

from collections.abc import Sequence

import numpy as np

from galaxydit.calibration.drift import Drift, Weights
from galaxydit.calibration.recording import Recording
from galaxydit.propagation import Propagation

PULLS = (0.1, 1.0, 10.0)  # towards order 1, in shares of each term's own square
FOLDS = 4


def fit_weights(
    drift: Drift, full: Sequence[int], propagation: Propagation, pull: float = PULLS[0]
) -> tuple[Weights, float]:
    """The weights with the least error at the end, in the mean over the recordings, and that error.

    `Drift.at_the_end` is a quadratic form in all weights of a schedule at once, so that they follow from one system of
    linear equations: what one gap does wrong, the next ones may undo. Full steps that no reused one follows get the
    weights of a neighbour, so that they can be interpolated for other numbers of full steps. `pull` keeps weights near
    order 1 that the recordings say little about.
    """
    where, terms = drift.gaps(full, propagation)
    if not where:
        return ((1.0, 0.0),) * len(full), 0.0
    rows = terms.reshape(-1, terms.shape[2])
    gap, is_free = np.repeat(np.arange(len(where)), 3), np.tile([False, True, True], len(where))
    share = np.where(gap[:, None] == gap[None, :], 1.0, drift.lasting(terms))
    products = share * (rows @ drift.mean_products @ rows.T)
    square, against = products[is_free][:, is_free], products[is_free][:, ~is_free].sum(axis=1)
    usual = np.tile([1.0, 0.0], len(where))
    # A term without anchors is 0: its weight is left as usual.
    pulls = np.where(np.diag(square) > 0, pull * np.diag(square), 1.0)
    found = np.linalg.solve(square + np.diag(pulls), pulls * usual - against).reshape(-1, 2)
    fitted = [(float(f"{line:.6g}"), float(f"{parabola:.6g}")) for line, parabola in found]
    nearest = np.maximum(0, np.searchsorted(where, np.arange(len(full)), side="right") - 1)
    weights = tuple(fitted[gap] for gap in nearest)
    shares = np.array([(1.0, *pair) for pair in fitted]).ravel()
    return weights, max(0.0, float(shares @ products @ shares))


def choose_pull(recordings: Sequence[Recording], full: Sequence[int], propagation: Propagation) -> float | None:
    """The pull whose weights serve best those recordings that they were not fitted to; None where order 1 does."""
    errors: dict[float | None, float] = dict.fromkeys((None, *reversed(PULLS)), 0.0)
    folds = min(FOLDS, len(recordings))
    for fold in range(folds):
        seen = Drift([recording for index, recording in enumerate(recordings) if index % folds != fold])
        unseen = Drift(recordings[fold::folds])
        for pull in errors:
            weights = None if pull is None else fit_weights(seen, full, propagation, pull)[0]
            errors[pull] += float(unseen.at_the_end(full, propagation, weights).sum())
    return min(errors, key=lambda pull: errors[pull])
