"""How sure a mean over prompts is."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import bootstrap

RESAMPLES = 9999
CONFIDENCE = 0.95
SEED = 0


def interval(numerators: ArrayLike, denominators: ArrayLike | None = None) -> tuple[float, float] | tuple[None, None]:
    """The 95 % interval of sum(numerators) / sum(denominators), by the percentile bootstrap.

    Prompts are drawn with replacement, each with both of its numbers, as many as there are; the ratio is taken of each
    of 9,999 such draws, and the interval goes from the 2.5th to the 97.5th percentile (Efron 1979, doi
    10.1214/aos/1176344552). The seed is always 0: equal numbers give an equal interval.

    Args:
        numerators: `(prompts,)`, in any unit: each prompt's sum over its videos, since those are not independent.
        denominators: `(prompts,)`, above 0; left out they are 1, and the ratio is the mean of the numerators. For
            paired differences pass those as numerators.

    Returns:
        Low and high in the unit of the ratio, or None twice where fewer than two prompts or an infinite numerator leave
        nothing to draw from.
    """
    top = np.asarray(numerators, dtype=np.float64)
    bottom = np.ones_like(top) if denominators is None else np.asarray(denominators, dtype=np.float64)
    if len(top) < 2 or not np.isfinite(top).all():
        return None, None
    drawn = bootstrap(
        (top, bottom),
        lambda drawn_top, drawn_bottom, axis: drawn_top.sum(axis) / drawn_bottom.sum(axis),
        paired=True,
        vectorized=True,
        n_resamples=RESAMPLES,
        batch=1000,  # so that thousands of prompts do not fill the memory
        confidence_level=CONFIDENCE,
        method="percentile",
        random_state=SEED,
    )
    return float(drawn.confidence_interval.low), float(drawn.confidence_interval.high)
