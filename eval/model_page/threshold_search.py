"""The threshold of a method that computes a wanted share."""

import math
from collections.abc import Callable


def nearest_threshold(
    share_of: Callable[[float], float], wanted: float, bounds: tuple[float, float], trials: int
) -> float:
    """Of `trials` thresholds of a bisection between the logarithms of the bounds, the one whose share is nearest.

    `share_of` returns the computed share of a threshold, which falls as the threshold rises.
    """
    low, high = map(math.log, bounds)
    shares: dict[float, float] = {}
    for _ in range(trials):
        threshold = math.exp((low + high) / 2)
        shares[threshold] = share_of(threshold)
        if shares[threshold] > wanted:
            low = math.log(threshold)
        else:
            high = math.log(threshold)
    return min(shares, key=lambda threshold: abs(shares[threshold] - wanted))
