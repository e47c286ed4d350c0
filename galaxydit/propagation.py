"""What an error made at some noise level has become at the end of a generation. Pure Python numbers."""

import math
from bisect import bisect_left
from dataclasses import dataclass

from galaxydit.error_map import check_ascending
from galaxydit.errors import GalaxyDiTError


@dataclass(frozen=True)
class Propagation:
    """How errors of the latent grow or fade until the end.

    Attributes:
        sigmas: noise levels at which it was measured, falling; empty if it was not.
        gains: error of the final latent / error made at that noise level, above 0.
    """

    sigmas: tuple[float, ...] = ()
    gains: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        check_ascending("propagation's sigmas", tuple(reversed(self.sigmas)), strictly=True)
        if len(self.sigmas) != len(self.gains) or not all(0 < gain < math.inf for gain in self.gains):
            raise GalaxyDiTError(
                f"propagation's gains={self.gains!r}, allowed is a number above 0 for each of its {len(self.sigmas)} "
                "sigmas; calibrate again"
            )

    def gain(self, sigma: float) -> float:
        """The gain at a noise level, on straight lines through the measured logarithms, which go on at both ends; 1
        where nothing was measured.
        """
        if len(self.sigmas) < 2:
            return self.gains[0] if self.gains else 1.0
        right = min(max(1, bisect_left(self.sigmas, -sigma, key=lambda value: -value)), len(self.sigmas) - 1)
        high, low = self.sigmas[right - 1], self.sigmas[right]
        share = (high - sigma) / (high - low)
        return math.exp((1 - share) * math.log(self.gains[right - 1]) + share * math.log(self.gains[right]))
