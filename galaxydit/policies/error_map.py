"""The calibrated map from proxy distance to expected error: monotone, piecewise linear, one curve a noise level."""

import math
from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise

from galaxydit.errors import GalaxyDiTError

ACCUMULATIONS = ("distances", "errors")


def check_ascending(field: str, values: tuple[float, ...], *, strictly: bool) -> None:
    """Raise GalaxyDiTError where a value is not finite, is negative, or goes down (or, strictly, stays the same)."""
    for value in values:
        if not math.isfinite(value) or value < 0:
            raise GalaxyDiTError(f"{field} holds {value!r}, allowed are finite numbers of at least 0; calibrate again")
    for before, after in pairwise(values):
        if after < before or (strictly and after == before):
            raise GalaxyDiTError(
                f"{field} goes from {before!r} to {after!r}, allowed are "
                f"{'rising' if strictly else 'never falling'} numbers; calibrate again"
            )


@dataclass(frozen=True)
class Curve:
    """Expected error as a function of distance at one noise level.

    Attributes:
        sigma: noise level in [0, 1] for which the curve was fitted.
        distances: proxy distances, rising from above 0.
        errors: expected relative error of the prediction at each distance, never falling.
        spread: standard deviation of the error around each value.
    """

    sigma: float
    distances: tuple[float, ...]
    errors: tuple[float, ...]
    spread: tuple[float, ...]

    def __post_init__(self) -> None:
        if not (math.isfinite(self.sigma) and 0 <= self.sigma <= 1):
            raise GalaxyDiTError(f"sigma={self.sigma!r} is not a number from 0 to 1; calibrate again")
        if not self.distances or not len(self.distances) == len(self.errors) == len(self.spread):
            raise GalaxyDiTError(
                f"distances, errors and spread have {len(self.distances)}, {len(self.errors)} and {len(self.spread)} "
                "entries, allowed is the same number of at least 1; calibrate again"
            )
        check_ascending("distances", self.distances, strictly=True)
        check_ascending("errors", self.errors, strictly=False)
        if self.distances[0] == 0:
            raise GalaxyDiTError("distances starts with 0, allowed are numbers above 0; calibrate again")
        for value in self.spread:
            if not math.isfinite(value) or value < 0:
                raise GalaxyDiTError(
                    f"spread holds {value!r}, allowed are finite numbers of at least 0; calibrate again"
                )

    def __call__(self, distance: float) -> float:
        """The expected relative error: a straight line from the origin to the first knot, and on in proportion after
        the last, where nothing was measured.
        """
        xs, ys = self.distances, self.errors
        if distance <= xs[0]:
            return ys[0] * max(0.0, distance) / xs[0]
        if distance >= xs[-1]:
            return ys[-1] * distance / xs[-1]
        right = bisect_right(xs, distance)
        share = (distance - xs[right - 1]) / (xs[right] - xs[right - 1])
        return ys[right - 1] + share * (ys[right] - ys[right - 1])


@dataclass(frozen=True)
class ErrorMap:
    """Curves at one or more noise levels; between two the expected error is interpolated in sigma.

    Attributes:
        accumulate: "distances" sums distances since the last full step and maps the sum; "errors" maps each distance
            and sums the errors, as TeaCache does (arXiv 2411.19108).
        curves: by rising sigma.
    """

    accumulate: str
    curves: tuple[Curve, ...]

    def __post_init__(self) -> None:
        if self.accumulate not in ACCUMULATIONS:
            raise GalaxyDiTError(
                f"accumulate={self.accumulate!r}, allowed are {', '.join(ACCUMULATIONS)}; calibrate again"
            )
        if not self.curves:
            raise GalaxyDiTError("curves is empty, allowed is at least one curve; calibrate again")
        check_ascending("curves' sigma", tuple(curve.sigma for curve in self.curves), strictly=True)

    def __call__(self, distance: float, sigma: float) -> float:
        """Expected relative error for a distance at a noise level, at least 0."""
        curves = self.curves
        if sigma <= curves[0].sigma:
            return curves[0](distance)
        if sigma >= curves[-1].sigma:
            return curves[-1](distance)
        right = next(index for index, curve in enumerate(curves) if curve.sigma > sigma)
        low, high = curves[right - 1], curves[right]
        share = (sigma - low.sigma) / (high.sigma - low.sigma)
        return (1 - share) * low(distance) + share * high(distance)
