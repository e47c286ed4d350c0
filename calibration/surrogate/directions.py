"""Independent scalar directions of a latent with discrete distributions, whose exact denoiser is known.

A clean value is a value that the clean latent can have along a direction. A node is one initial noise value from which
a direction is generated.
"""

from dataclasses import dataclass
from functools import cached_property
from math import log

import numpy as np
import torch
from torch import Tensor

from galaxydit.calibration.recording import Array

VARIANCES = np.logspace(-2, 6, 33)
"""Variances of the clean latent along a direction; noise has variance 1."""


@dataclass(frozen=True)
class Distribution:
    """A discrete distribution that is symmetric around 0: rising values, of any scale, with their probabilities."""

    values: tuple[float, ...]
    probabilities: tuple[float, ...]

    @property
    def unit_values(self) -> Array:
        """The values scaled to variance 1."""
        values = np.array(self.values)
        return np.asarray(values / np.sqrt(np.array(self.probabilities) @ values**2))


FOUR = Distribution((-3.0, -1.0, 1.0, 3.0), (0.25, 0.25, 0.25, 0.25))
SPARSE = Distribution((-3.0, -1.5, 0.0, 1.5, 3.0), (0.05, 0.1, 0.7, 0.1, 0.05))
DISTRIBUTIONS = {"four": FOUR, "sparse": SPARSE}


@dataclass(frozen=True, eq=False)
class Directions:
    """Directions whose clean values have the same `distribution`, each scaled to a variance of its own.

    Attributes:
        distribution: of the clean values, up to their scale.
        variances: variance of the clean values of each direction, `(directions,)`.
    """

    distribution: Distribution
    variances: Array

    @cached_property
    def boundaries(self) -> Tensor:
        """Midpoints above 0 between neighbouring clean values, `(directions, boundaries)`."""
        values = self.distribution.unit_values
        middles = (values[1:] + values[:-1]) / 2
        return torch.tensor(np.outer(np.sqrt(self.variances), middles[middles > 1e-9]))

    def velocity(self, latent: Tensor, sigma: float) -> Tensor:
        """Exact flow-matching prediction E[noise - clean | latent] at a noise level above 0, `(directions, nodes)`.

        `latent`, `(directions, nodes)`, is (1 - sigma) clean + sigma noise.
        """
        likelihood = self._log_probabilities - (latent - (1 - sigma) * self._values) ** 2 / (2 * sigma**2)
        return (latent - (torch.softmax(likelihood, 0) * self._values).sum(0)) / sigma

    @cached_property
    def _values(self) -> Tensor:
        """Clean values of each direction, `(values, directions, 1)`."""
        return torch.tensor(np.multiply.outer(self.distribution.unit_values, np.sqrt(self.variances)))[..., None]

    @cached_property
    def _log_probabilities(self) -> Tensor:
        return torch.tensor([log(p) for p in self.distribution.probabilities], dtype=torch.float64)[:, None, None]
