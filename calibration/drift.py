"""How far reuse moves the latent, from the recorded products of the guided prediction: no tensor is needed."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from galaxydit.calibration.recording import LONGEST_LAG, Recording
from galaxydit.propagation import Propagation

LONGEST_GAP = 8  # steps between two full ones for which errors are read; longer ones are extrapolated

Array = NDArray[np.float64]


class Drift:
    """What every schedule of full steps would have done to recorded generations.

    Between the full steps a and b of a generation, a prediction p_i stands for the guided prediction y_i, and Euler's
    rule carries the difference into the latent:

        d(a, b) = sum over a < i < b of (sigma_i - sigma_(i+1)) (p_i - y_i)

    Differences within a gap point much the same way, as all come from the same full steps: so vectors are added up, not
    their lengths. Those of different gaps are taken as unrelated.
    """

    def __init__(self, recordings: Sequence[Recording], order: int) -> None:
        self.sigmas = recordings[0].sigmas
        self.order = order
        self._products = [
            np.array([recording.guided_gram[step] for recording in recordings]) for step in range(len(self.sigmas))
        ]

    def of_gap(self, older: int, newest: int, following: int) -> Array:
        """Mean square of d(newest, following) for each recording, `(recordings,)`, in the latent's units squared.

        `older` is the full step before `newest`, which order 1 needs; -1 for none. Beyond what was recorded d grows
        with the square of the gap.
        """
        gap = following - newest
        if gap < 2:
            return np.zeros(len(self._products[0]))
        if gap > LONGEST_GAP:
            return self.of_gap(older, newest, newest + LONGEST_GAP) * (gap / LONGEST_GAP) ** 4
        last = following - 1
        weights = self._weights(max(older, last - LONGEST_LAG), newest, last)
        return np.maximum(0.0, np.einsum("i,nij,j->n", weights, self._products[last], weights))

    def _weights(self, older: int, newest: int, last: int) -> Array:
        """Weights of y[last - 1], y[last - 2], ... in d. Products refer to y[last], whose weight makes the sum 0."""
        weights, sigmas = np.zeros(self._products[last].shape[1] + 1), self.sigmas
        for step in range(newest + 1, last + 1):
            size = sigmas[step] - (sigmas[step + 1] if step + 1 < len(sigmas) else 0.0)
            back = 0.0
            if self.order and 0 <= older < newest:
                back = (sigmas[newest] - sigmas[step]) / (sigmas[older] - sigmas[newest])
                weights[last - older] -= size * back
            weights[last - newest] += size * (1 + back)
            weights[last - step] -= size
        return weights[1:]

    def at_the_end(self, full: Sequence[int], propagation: Propagation) -> Array:
        """Expected mean square error of the final latent for each recording, `(recordings,)`, if these steps are full.

        Each gap's drift grows by the propagation's gain at its noise level; the first and the last step are full.
        """
        total = np.zeros(len(self._products[0]))
        for (older, newest), following in zip(pairwise((-1, *full)), full[1:], strict=False):
            total += propagation.gain(self.sigmas[newest]) ** 2 * self.of_gap(older, newest, following)
        return total
