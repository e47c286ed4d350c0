"""Calibrated expectations: the relative error of a reused step by proxy distance, and the proxy distance by sigma."""

from dataclasses import dataclass

import numpy as np

from galaxydit.errors import GalaxyDiTError, check_ascending, check_number


@dataclass(frozen=True)
class Curve:
    """Expected error by proxy distance since the last full step, at one noise level: monotone, piecewise linear."""

    sigma: float  # in [0, 1]
    distances: tuple[float, ...]  # rising from above 0
    errors: tuple[float, ...]  # of the prediction at each distance, relative, never falling
    spread: tuple[float, ...]  # standard deviation of the error at each distance

    def __post_init__(self) -> None:
        if not self.distances or not len(self.distances) == len(self.errors) == len(self.spread):
            raise GalaxyDiTError(
                f"distances, errors and spread have {len(self.distances)}, {len(self.errors)} and {len(self.spread)} "
                "entries: expected the same number of at least 1; calibrate again"
            )
        check_ascending("distances", self.distances, strictly=True)
        check_ascending("errors", self.errors, strictly=False)
        check_number("sigma", self.sigma, 0, 1)
        if self.distances[0] == 0:
            raise GalaxyDiTError("distances starts with 0: expected numbers above 0; calibrate again")
        for value in self.spread:
            check_number("spread", value, 0)

    def __call__(self, distance: float) -> float:
        """The expected relative error at a proxy `distance`; outside the measured distances, proportional to it."""
        within = np.interp(distance, (0.0, *self.distances), (0.0, *self.errors))
        return float(within) * max(1.0, distance / self.distances[-1])


@dataclass(frozen=True)
class ErrorMap:
    """Curves of the expected error, interpolated in sigma; outside their noise levels the nearest curve holds."""

    curves: tuple[Curve, ...]  # by rising sigma

    def __post_init__(self) -> None:
        if not self.curves:
            raise GalaxyDiTError("curves is empty: expected at least one curve; calibrate again")
        check_ascending("curves' sigma", tuple(curve.sigma for curve in self.curves), strictly=True)

    def __call__(self, distance: float, sigma: float) -> float:
        """Expected relative error, at least 0, for a proxy distance since the last full step, at a noise level."""
        sigmas = [curve.sigma for curve in self.curves]
        errors = [curve(distance) for curve in self.curves]
        return float(np.interp(sigma, sigmas, errors))


@dataclass(frozen=True)
class CumulativeDistance:
    """Mean proxy distance from the first step of the calibration to each noise level."""

    sigmas: tuple[float, ...]  # of the calibrated steps, falling
    distances: tuple[float, ...]  # to each of them, never falling

    def __post_init__(self) -> None:
        check_ascending("distances", self.distances, strictly=False)
        check_ascending("sigmas", tuple(reversed(self.sigmas)), strictly=True)
        if len(self.sigmas) != len(self.distances) or not self.sigmas:
            raise GalaxyDiTError(
                f"sigmas has {len(self.sigmas)} entries and distances {len(self.distances)}: expected the same number "
                "of at least 1; calibrate again"
            )

    def __call__(self, sigma: float) -> float:
        """The mean distance from the first step to a noise level, interpolated in sigma, for any number of steps."""
        # Noise levels fall, and np.interp takes rising ones.
        return float(np.interp(-sigma, -np.asarray(self.sigmas), self.distances))
