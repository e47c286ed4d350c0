"""Bootstrap over prompts: the interval of a mean or a ratio, and the resampled prompts themselves."""

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

RESAMPLES = 9999
BATCH = 500  # resamples at once, which bounds the memory for thousands of prompts
PERCENTILES = (2.5, 97.5)
DRAWS = 2000


def draws_of(prompts: int) -> NDArray[np.int64]:
    """Indices of the prompts in each of 2,000 resamples with replacement, `(2000, prompts)`.

    `prompts` is the number of prompts. The seed is fixed, so equal numbers give equal indices.
    """
    return np.random.default_rng(0).integers(prompts, size=(DRAWS, prompts))


def interval(numerators: ArrayLike, denominators: ArrayLike | None = None) -> tuple[float, float] | tuple[None, None]:
    """The 95 % interval of sum(numerators) / sum(denominators), by the percentile bootstrap.

    Prompts are resampled with replacement, each with both of its numbers (paired), 9,999 times. The interval spans the
    2.5th to the 97.5th percentile of the ratio (Efron 1979, doi 10.1214/aos/1176344552). The seed is fixed, so equal
    arguments give equal intervals.

    Args:
        numerators: `(prompts,)`, in any unit: for each prompt the sum over its videos, because videos of one prompt are
            not independent.
        denominators: `(prompts,)`, above 0; by default 1, so that the ratio is the mean of the numerators.

    Returns:
        Lower and upper end in the unit of the ratio; `(None, None)` for fewer than two prompts or a numerator that is
            not finite.
    """
    top = np.asarray(numerators, dtype=np.float64)
    bottom = np.ones_like(top) if denominators is None else np.asarray(denominators, dtype=np.float64)
    if len(top) < 2 or not np.isfinite(top).all():
        return None, None
    sums = np.concatenate([counts @ np.stack([top, bottom], axis=1) for counts in _batches(len(top))])
    low, high = np.percentile(sums[:, 0] / sums[:, 1], PERCENTILES)
    return float(low), float(high)


def _batches(prompts: int) -> Iterator[NDArray[np.float64]]:
    """Yield the rows of `_counts`, how often each resample draws each prompt, at most 500 at a time, as float64."""
    counts = _counts(prompts)
    for start in range(0, RESAMPLES, BATCH):
        yield counts[start : start + BATCH].astype(np.float64)


@lru_cache(maxsize=2)  # the intervals of a report share their prompts
def _counts(prompts: int) -> NDArray[np.uint8]:
    """How often each resample draws each prompt, `(resamples, prompts)`; `prompts` is the number of prompts.

    The counts are cached. scipy.stats.bootstrap draws its resamples anew at each call, which takes 0.1 seconds and more
    for a thousand prompts.
    """
    rng = np.random.RandomState(0)  # draws what scipy.stats.bootstrap draws with this seed
    rows = np.arange(BATCH)[:, None] * prompts
    counts = np.empty((RESAMPLES, prompts), np.uint8)
    for start in range(0, RESAMPLES, BATCH):
        size = min(BATCH, RESAMPLES - start)
        drawn = rng.randint(0, prompts, (size, prompts)) + rows[:size]
        counts[start : start + size] = np.bincount(drawn.ravel(), minlength=size * prompts).reshape(size, prompts)
    return counts
