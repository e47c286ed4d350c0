"""What is kept of one recorded generation: scalars, and what follows from them."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

LAGS = (1, 2, 3, 4)
CONDITIONAL, UNCONDITIONAL = "conditional", "unconditional"

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Recording:
    """One generation, computed in full and watched.

    Attributes:
        prompt, seed: what was generated.
        sigmas: noise level of each step.
        step_weights: what the guided prediction of each step weighs in the final latent, by the scheduler alone.
        guidance_scale: as used by the pipeline; 1 without guidance.
        latent_shape: of the transformer's input, one sample.
        distances: by branch and proxy, the relative L1 distance to the step before; 0 for the first step.
        residual_changes: by branch, then one row a step: relative L2 change of what the block stack adds to its input,
            over 1 to 4 steps; 0 where there are not so many. Empty for families whose blocks hand on several tensors.
        output_changes: the same for each branch's output.
        guided_norms: root mean square of the guided prediction at each step.
        guided_products: mean products of the changes y[i + 1] - y[i] and y[j + 1] - y[j] of the guided prediction y,
            `(steps - 1, steps - 1)`. From them follows the error of every prediction of any y[i] from other steps whose
            coefficients sum to 1, without a tensor being kept.
    """

    prompt: str
    seed: int
    sigmas: tuple[float, ...]
    step_weights: tuple[float, ...]
    guidance_scale: float
    latent_shape: tuple[int, ...]
    distances: Mapping[str, Mapping[str, tuple[float, ...]]]
    residual_changes: Mapping[str, tuple[tuple[float, ...], ...]]
    output_changes: Mapping[str, tuple[tuple[float, ...], ...]]
    guided_norms: tuple[float, ...]
    guided_products: tuple[tuple[float, ...], ...]

    @property
    def steps(self) -> int:
        return len(self.sigmas)

    @property
    def proxies(self) -> tuple[str, ...]:
        return tuple(self.distances[CONDITIONAL])

    def accumulated(self, proxy: str, lag: int, branch: str = CONDITIONAL) -> Array:
        """Distance summed over the last `lag` steps, `(steps,)`, as the controller sums it; NaN for the first `lag`."""
        total = np.concatenate([[0.0], np.cumsum(self.distances[branch][proxy])])
        summed = np.full(self.steps, np.nan)
        summed[lag:] = total[lag + 1 :] - total[1 : self.steps - lag + 1]
        return summed

    def guided_change(self, lag: int) -> Array:
        """Relative L2 change of the guided prediction over `lag` steps, `(steps,)`; NaN for the first `lag`."""
        return self.prediction_error(0, lag, 1)

    def prediction_error(self, order: int, gap: int, gap_before: int) -> Array:
        """True relative L2 error of the prediction of each step, `(steps,)`, from the full step `gap` steps before it
        and, for order 1, the one `gap_before` steps before that; NaN where those do not exist.
        """
        errors = np.full(self.steps, np.nan)
        reach = gap + (gap_before if order else 0)
        for step in range(reach, self.steps):
            if self.guided_norms[step] > 0:
                newest, older = self.sigmas[step - gap], self.sigmas[step - reach]
                ahead = (self.sigmas[step] - newest) / (newest - older) if order and newest != older else 0.0
                weights = np.zeros(self.steps)
                weights[step - gap] += 1 + ahead
                weights[step - reach] -= ahead
                weights[step] -= 1
                errors[step] = math.sqrt(self.mean_square(weights)) / self.guided_norms[step]
        return errors

    @cached_property
    def products(self) -> Array:
        """`guided_products` as an array."""
        return np.array(self.guided_products)

    def mean_square(self, weights: Array) -> float:
        """Mean square of the sum of the guided predictions with these weights, `(steps,)`, which sum to 0."""
        changes = in_changes(weights)
        return max(0.0, float(changes @ self.products @ changes))

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Recording":
        """From the plain data of `to_dict`; raises KeyError or TypeError for anything else."""
        return cls(**{name: _frozen(value) for name, value in data.items()})


def in_changes(weights: Array) -> Array:
    """A sum over y[0], y[1], ... whose weights sum to 0, as a sum over the changes y[1] - y[0], y[2] - y[1], ..."""
    return -np.cumsum(weights)[:-1]


def _frozen(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_frozen(item) for item in value)
    if isinstance(value, dict):
        return {key: _frozen(item) for key, item in value.items()}
    return value
