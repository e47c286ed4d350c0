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
ORDERS = (0, 1)  # of the prediction of a reused step

Array = NDArray[np.float64]


@dataclass(frozen=True)
class StreamRecording:
    """The scalars of a further output stream, such as the sound: those of `Recording`, with its own noise levels."""

    sigmas: tuple[float, ...]
    scheduler_response: tuple[float, ...]
    guided_norms: tuple[float, ...]
    guided_products: tuple[tuple[float, ...], ...]

    def with_noise(self, share: float, sign: int = 1) -> "StreamRecording":
        return replace(self, guided_products=_with_noise(self, share, sign))


@dataclass(frozen=True)
class Recording:
    """The scalars that a calibration keeps of one generation, whose steps were all computed.

    y[i] is the guided prediction of step i, in float32 or with its rounding subtracted. The products of differences
    determine the error of every linear prediction whose coefficients sum to 1, so no tensor is kept.
    """

    prompt: str
    seed: int
    sigmas: tuple[float, ...]  # noise level of each step, falling, `(steps,)`
    scheduler_response: tuple[float, ...]  # linear response of the final latent to each y[i], `(steps,)`
    guidance_scale: float
    latent_shape: tuple[int, ...]
    distances: Mapping[str, tuple[float, ...]]  # of each proxy to the step before; 0 for a transformer's first step
    guided_norms: tuple[float, ...]  # root mean square of y[i], `(steps,)`
    guided_products: tuple[tuple[float, ...], ...]  # means of (y[i + 1] - y[i]) (y[j + 1] - y[j]), `(steps - 1,) * 2`
    switch: int = 0  # first step of the second transformer; 0 for a single transformer
    rounding: float = 0.0  # rms error that the model's own dtype adds to y[i], divided by the rms of y[i]
    further: tuple[StreamRecording, ...] = ()  # other output streams, such as the sound

    @cached_property
    def rounded(self) -> "Recording":
        """This recording with the rounding of the model's own dtype, as white noise of each y[i]."""
        further = tuple(stream.with_noise(self.rounding) for stream in self.further)
        return replace(self, guided_products=_with_noise(self, self.rounding), rounding=0.0, further=further)

    def scaled(self, ratios: Mapping[str, Array]) -> "Recording":
        """This recording with the distances of each proxy multiplied by its ratios, `(steps,)`."""
        distances = {}
        for proxy, values in self.distances.items():
            distances[proxy] = tuple(map(round_digits, np.array(values) * ratios.get(proxy, 1.0)))
        return replace(self, distances=distances)

    def without_rounding(self, rounding: float) -> "Recording":
        """A recording of the model's own dtype, with its rounding subtracted."""
        further = tuple(stream.with_noise(rounding, sign=-1) for stream in self.further)
        products = _with_noise(self, rounding, sign=-1)
        return replace(self, guided_products=products, rounding=rounding, further=further)

    @property
    def steps(self) -> int:
        return len(self.sigmas)

    def accumulated(self, proxy: str, lag: int) -> Array:
        """Proxy distance summed over the last `lag` steps, `(steps,)`; NaN in each transformer's first `lag` steps."""
        total = np.cumsum(self.distances[proxy])
        summed = np.full(self.steps, np.nan)
        summed[lag:] = total[lag:] - total[:-lag]
        summed[self.switch : self.switch + lag] = np.nan
        return summed

    def guided_change(self, lag: int) -> Array:
        """Relative L2 change of the guided prediction over `lag` steps, `(steps,)`; NaN in the first `lag` steps."""
        return self.prediction_error(0, lag, 1)

    def prediction_error(self, order: int, gap: int, gap_before: int) -> Array:
        """Relative L2 error of predicting y of each step, `(steps,)`; NaN without such full steps in its transformer.

        `gap` is the number of steps since the last full step, `gap_before` that between the last two.
        """
        errors = np.full(self.steps, np.nan)
        reach = gap + (gap_before if order else 0)
        for step in range(reach, self.steps):
            crosses_switch = step - reach < self.switch <= step
            if self.guided_norms[step] > 0 and not crosses_switch:
                older = step - reach if order else None
                differences = as_differences(error_coefficients(self.sigmas, step, step - gap, older))
                mean_square = max(0.0, float(differences @ self.products @ differences))
                errors[step] = math.sqrt(mean_square) / self.guided_norms[step]
        return errors

    @cached_property
    def errors_of_reuse(self) -> dict[tuple[int, int], Array]:
        """`prediction_error` by order and lag, where full steps are `lag` steps apart."""
        errors = {}
        for order in ORDERS:
            for lag in LAGS:
                errors[order, lag] = self.prediction_error(order, lag, lag)
        return errors

    @cached_property
    def products(self) -> Array:
        return np.array(self.guided_products)


def _with_noise(recording: Recording | StreamRecording, share: float, sign: int = 1) -> tuple[tuple[float, ...], ...]:
    """The products if each y[i] had white noise of `share` of its rms, or, with `sign` -1, without this noise."""
    mean_square = sign * (share * np.array(recording.guided_norms)) ** 2
    # Noise of y[i] enters the difference before step i and the difference after it, with opposite signs.
    noise = np.diag(mean_square[:-1] + mean_square[1:]) - np.diag(mean_square[1:-1], 1) - np.diag(mean_square[1:-1], -1)
    before = np.array(recording.guided_products)
    products = before + noise
    if sign < 0:  # a difference is at least as large as its smooth part, which the products of a longer lag show
        np.fill_diagonal(products, np.maximum(np.diagonal(products), 1e-3 * np.diagonal(before)))
    return rounded_products(products.tolist())


def rounded_products(products: Sequence[Sequence[float]]) -> tuple[tuple[float, ...], ...]:
    """A matrix of products with ten digits, which their differences need."""
    rows = []
    for row in products:
        rows.append(tuple(round_digits(value, 10) for value in row))
    return tuple(rows)


def ratios_of_distances(full: Recording, small: Recording) -> dict[str, Array]:
    """For each proxy, its distances in one recording divided by those in another, `(steps,)`; 1 where either is 0."""
    found = {}
    for proxy, values in full.distances.items():
        above = np.array(values)
        below = np.array(small.distances[proxy])
        found[proxy] = np.divide(above, below, out=np.ones_like(above), where=(above > 0) & (below > 0))
    return found


def rounding_between(own: Recording, exact: Recording) -> float:
    """Rms error that 16 bits add to the guided prediction / its rms: a median over the steps of two recordings."""
    # The differences into and out of a step hold its rounding with opposite signs, which lowers their mean product.
    return _rms_share(np.diagonal(exact.products - own.products, 1), exact.guided_norms[1:-1])


def estimated_rounding(own: Recording) -> float:
    """As `rounding_between` where no exact generation exists, such as for a quantised model."""
    # Products of differences three steps apart hold no rounding, and are near those of neighbours if it is smooth.
    return _rms_share(np.diagonal(own.products, 3) - np.diagonal(own.products, 1)[1:-1], own.guided_norms[2:-2])


def _rms_share(mean_squares: Array, norms: Sequence[float]) -> float:
    return float(np.sqrt(max(0.0, float(np.median(mean_squares / np.array(norms) ** 2)))))


def median_change(recordings: Sequence[Recording]) -> float:
    """Rms change of the guided prediction from step to step, divided by its rms: a median over the steps."""
    products = np.mean([recording.products for recording in recordings], axis=0)
    norms = np.mean([recording.guided_norms for recording in recordings], axis=0)
    return float(np.median(np.sqrt(np.diagonal(products)) / norms[1:]))


def error_coefficients(sigmas: Sequence[float], step: int, newest: int, older: int | None) -> Array:
    """c, `(steps,)`: the error of predicting y[step] from these full steps, or by y[newest] alone, is sum c[i] y[i]."""
    coefficients = np.zeros(len(sigmas))
    coefficients[newest] = 1.0
    coefficients[step] = -1.0
    if older is not None:
        # y[newest] + ahead (y[newest] - y[older]) predicts y[step]
        ahead = slope_ahead(sigmas[step], sigmas[newest], sigmas[older])
        coefficients[newest] += ahead
        coefficients[older] -= ahead
    return coefficients


def as_differences(coefficients: Array) -> Array:
    """d, `(steps - 1,)`, with sum d[i] (y[i + 1] - y[i]) = sum c[i] y[i] for `coefficients` c that sum to 0."""
    return -np.cumsum(coefficients)[:-1]


def round_digits(value: Any, digits: int = 7) -> float:
    """`value` rounded to `digits` significant digits; float32 carries seven."""
    return float(f"{float(value):.{digits}g}")
