"""Bootstrap interval of a mean or a ratio over prompts."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import bootstrap


def interval(numerators: ArrayLike, denominators: ArrayLike | None = None) -> tuple[float, float] | tuple[None, None]:
    """The 95 % interval of sum(numerators) / sum(denominators), by the percentile bootstrap.

    Prompts are resampled with replacement, each with both of its numbers (paired), 9,999 times; the interval spans the
    2.5th to the 97.5th percentile of the ratio (Efron 1979, doi 10.1214/aos/1176344552). The seed is fixed, so equal
    numbers give equal intervals.

    Args:
        numerators: `(prompts,)`, in any unit: each prompt's sum over its videos, because those are not independent.
        denominators: `(prompts,)`, above 0; by default 1, and then the ratio is the mean of the numerators.

    Returns:
        Low and high in the unit of the ratio; None twice for fewer than two prompts and for an infinite numerator.
    """
    top = np.asarray(numerators, dtype=np.float64)
    bottom = np.ones_like(top) if denominators is None else np.asarray(denominators, dtype=np.float64)
    if len(top) < 2 or not np.isfinite(top).all():
        return None, None
    drawn = bootstrap(
        (top, bottom),
        lambda drawn_top, drawn_bottom, axis: drawn_top.sum(axis) / drawn_bottom.sum(axis),
        paired=True,
        n_resamples=9999,
        batch=1000,  # bounds the memory for thousands of prompts
        confidence_level=0.95,
        method="percentile",
        random_state=0,
    )
    return float(drawn.confidence_interval.low), float(drawn.confidence_interval.high)
