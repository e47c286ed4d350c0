"""Bootstrap over prompts: the interval of a mean or a ratio, and the resamples themselves."""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import bootstrap

DRAWS = 2000
# Fewest prompts with an interval. Of 5 independent differences that are as often positive as negative, all have the
# same sign with a probability of 2 / 2**5 = 6 %, so that 5 prompts cannot exclude zero at 95 %; 6 can (3 %).
FEWEST_PROMPTS = 6


def draws_of(prompts: int) -> NDArray[np.int64]:
    """Indices of the prompts in each of 2,000 resamples with replacement, `(2000, prompts)`, always the same."""
    return np.random.default_rng(0).integers(prompts, size=(DRAWS, prompts))


def resampled_means(values: ArrayLike) -> NDArray[np.float64]:
    """The mean of one value for each prompt in each resample, `(2000,)`."""
    array = np.asarray(values, dtype=np.float64)
    return array[draws_of(len(array))].mean(axis=1)


def interval(numerators: ArrayLike, denominators: ArrayLike | None = None) -> tuple[float, float] | tuple[None, None]:
    """95 % percentile bootstrap interval (Efron 1979) of the mean, or of sum(numerators) / sum(denominators).

    A prompt's number is the sum over its videos. `(None, None)` for fewer than `FEWEST_PROMPTS` prompts or an infinite
    numerator.
    """
    top = np.asarray(numerators, dtype=np.float64)
    if denominators is None:
        bottom = np.ones_like(top)
    else:
        bottom = np.asarray(denominators, dtype=np.float64)
    if len(top) < FEWEST_PROMPTS or not np.isfinite(top).all():
        return None, None
    found = bootstrap(
        (top, bottom),
        lambda above, below, axis: above.sum(axis) / below.sum(axis),
        paired=True,
        batch=500,  # bounds the memory for thousands of prompts
        method="percentile",
        random_state=0,
    ).confidence_interval
    return float(found.low), float(found.high)
