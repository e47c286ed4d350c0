"""The scalars kept of one fully computed generation, and the prediction errors that follow from them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from galaxydit.extrapolation import slope_ahead

LAGS = (1, 2, 3, 4)

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Recording:
    """The scalars that a calibration keeps of one generation, whose steps were all computed.

    y[i] is the guided prediction of step i, the transformer's output after guidance.

    Attributes:
        sigmas: noise level of each step, falling, `(steps,)`.
        scheduler_response: linear response of the final latent to each y[i], `(steps,)`.
        guidance_scale: as used by the pipeline; 1 without guidance.
        latent_shape: of the transformer's input, without the batch.
        distances: by proxy, its distance (L1, L2 or cosine, `Proxy.distance`) to the step before in the conditional
            branch, `(steps,)`; 0 for the first step of a transformer.
        guided_norms: root mean square of y[i], `(steps,)`.
        guided_products: products of the differences y[i + 1] - y[i] and y[j + 1] - y[j], averaged over the elements of
            the tensors, `(steps - 1, steps - 1)`. They determine the error of every linear prediction of y[i] whose
            coefficients sum to 1, so no tensor is kept.
        switch: first step of the second transformer, which cannot reuse steps of the first; 0 for a single transformer.
        exact_norms, exact_products: as `guided_norms` and `guided_products`, of the same generation with transformers
            in float32; empty if the generation was not repeated in float32.
    """

    prompt: str
    seed: int
    sigmas: tuple[float, ...]
    scheduler_response: tuple[float, ...]
    guidance_scale: float
    latent_shape: tuple[int, ...]
    distances: Mapping[str, tuple[float, ...]]
    guided_norms: tuple[float, ...]
    guided_products: tuple[tuple[float, ...], ...]
    switch: int = 0
    exact_norms: tuple[float, ...] = ()
    exact_products: tuple[tuple[float, ...], ...] = ()

    @cached_property
    def exact(self) -> "Recording":
        """This recording with the norms and products of float32, if they were recorded; else the recording itself."""
        if not self.exact_products:
            return self
        return replace(self, guided_norms=self.exact_norms, guided_products=self.exact_products)

    @property
    def steps(self) -> int:
        return len(self.sigmas)

    def accumulated(self, proxy: str, lag: int) -> Array:
        """Proxy distance summed over the last `lag` steps, `(steps,)`; NaN in each transformer's first `lag` steps."""
        total = np.concatenate([[0.0], np.cumsum(self.distances[proxy])])
        summed = np.full(self.steps, np.nan)
        summed[lag:] = total[lag + 1 :] - total[1 : self.steps - lag + 1]
        summed[self.switch : self.switch + lag] = np.nan
        return summed

    def guided_change(self, lag: int) -> Array:
        """Relative L2 change of the guided prediction over `lag` steps, `(steps,)`.

        It is NaN in each transformer's first `lag` steps.
        """
        return self.prediction_error(0, lag, 1)

    def prediction_error(self, order: int, gap: int, gap_before: int) -> Array:
        """Relative L2 error of predicting y of each step from earlier full steps, `(steps,)`.

        It is NaN at a step whose earlier full steps would lie before the first step of its transformer.

        Args:
            order: 0 repeats the last full step, 1 follows the damped slope of the last two.
            gap: steps since the last full step, at least 1.
            gap_before: steps between the last two full steps, at least 1.
        """
        errors = np.full(self.steps, np.nan)
        reach = gap + (gap_before if order else 0)
        for step in range(reach, self.steps):
            if self.guided_norms[step] > 0 and not step - reach < self.switch <= step:
                newest, older = self.sigmas[step - gap], self.sigmas[step - reach]
                ahead = slope_ahead(self.sigmas[step], newest, older) if order else 0.0
                coefficients = np.zeros(self.steps)
                coefficients[step - gap] += 1 + ahead
                coefficients[step - reach] -= ahead
                coefficients[step] -= 1
                differences = as_differences(coefficients)
                mean_square = max(0.0, float(differences @ self.products @ differences))
                errors[step] = math.sqrt(mean_square) / self.guided_norms[step]
        return errors

    @cached_property
    def products(self) -> Array:
        return np.array(self.guided_products)


def rounding_and_change(recordings: Sequence[Recording]) -> tuple[float, float] | None:
    """Rms error that 16-bit computation adds to the guided prediction, and the prediction's rms change from step to
    step, both relative to its rms.

    The products of the prediction's changes from step to step (`guided_products`) and its rms are first averaged over
    the recordings. Rounding and change then follow for each step, and both results are medians over the steps. They are
    None unless every recording also holds the products of the same generation in float32 (`exact_products`). The change
    into a step and the change out of it contain the step's rounding with opposite signs, so the mean of their product
    is lower in 16 bits than in float32, by the mean square of the rounding.
    """
    if not all(recording.exact_products for recording in recordings):
        return None
    rounded = np.mean([recording.products for recording in recordings], axis=0)
    exact = np.mean([recording.exact.products for recording in recordings], axis=0)
    norms = np.mean([recording.exact_norms for recording in recordings], axis=0)
    rounding = np.sqrt(np.maximum(0.0, np.diagonal(exact - rounded, 1))) / norms[1:-1]
    change = np.sqrt(np.diagonal(exact)) / norms[1:]
    return float(np.median(rounding)), float(np.median(change))


def as_differences(coefficients: Array) -> Array:
    """Coefficients d, `(steps - 1,)`, with sum d[i] (y[i + 1] - y[i]) = sum c[i] y[i] for any tensors y[i].

    `coefficients` are c, `(steps,)`, and must sum to 0. Here y[i] is the guided prediction of step i.
    """
    return -np.cumsum(coefficients)[:-1]


def round_digits(value: Any, digits: int = 7) -> float:
    """`value` rounded to `digits` significant digits; float32 carries seven."""
    return float(f"{float(value):.{digits}g}")
