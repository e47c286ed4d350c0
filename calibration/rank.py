"""Rank proxies by Spearman correlation with the error of reuse, along a trajectory and between samples.

The ranking along a trajectory is GalaxyDiT's (arXiv 2512.03451). Every quantity of a trajectory has a trend in time, so
a mere clock also ranks high there. Between samples at the same step there is no trend, so that ranking shows what a
proxy knows of one sample.

The distance of a proxy is its change from one step to the next: relative L1, relative L2 or cosine distance, as the
proxy defines (`galaxydit.proxies.distance_of`). The error of reuse is the relative L2 error that reuse would cause in
the guided prediction, the transformer's output after guidance. A lag is the number of steps since the last full step, 1
to 4. The order is 0 if a reused step repeats the last full step, and 1 if it extrapolates the last two.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata, spearmanr

from galaxydit.calibration.bootstrap import draws_of
from galaxydit.calibration.recording import LAGS, Array, Recording
from galaxydit.profiles.evidence import RankedProxy
from galaxydit.proxies import PROXIES

FIRST_STEP = 2  # recipes reuse steps after two full steps
PAPER_WARMUP = 0.2  # share of first steps that arXiv 2512.03451 never reuses
ORDERS = (0, 1)
MARGIN = 0.05  # of rho, by which a cheaper proxy may be worse than the best proxy
ROUNDING_ERROR = 1e-6  # a proxy whose median distance is below this is constant up to float32 rounding
LARGEST_Z = 5.0  # a correlation of 0.9999; a few steps cannot support more
ENOUGH_PROMPTS = 16  # fewer leave intervals wide, so that a cheaper proxy is seldom shown to be as good


@dataclass(frozen=True)
class Ranking:
    """The ranking of all proxies.

    Attributes:
        rows: one for each proxy, with its correlation along a trajectory, its correlation between samples, and its
            cost: seconds that reading it adds to a reused step / seconds of a full step. Each correlation is one number
            for all lags and orders. The best along a trajectory comes first.
        z_of_prompt: by proxy, Fisher's z of the correlation along a trajectory for each prompt, `(prompts,)`.
    """

    rows: tuple[RankedProxy, ...]
    z_of_prompt: Mapping[str, Array]


def rank_proxies(recordings: Sequence[Recording], costs: Mapping[str, float] | None = None) -> Ranking:
    """Rank all proxies of the recordings.

    For each lag, a proxy's distance summed over the lag is correlated with the error of reuse at both orders.
    Correlations along a trajectory are averaged over orders and lags through Fisher's z. Intervals are 95 % bootstraps
    over prompts. `costs` are, by proxy name, seconds of reading the proxy / seconds of a full step; a proxy without an
    entry has cost 0.
    """
    prompts = sorted({recording.prompt for recording in recordings})
    draws = draws_of(len(prompts))
    rows, z_of_prompt = [], {}
    for proxy in recordings[0].distances:
        z_of_prompt[proxy] = _by_prompt(recordings, partial(_z_along, proxy=proxy, orders=ORDERS))
        paper = _by_prompt(recordings, partial(_z_along, proxy=proxy, orders=(0,), warmup=PAPER_WARMUP))
        along = z_of_prompt[proxy]
        low, high = np.quantile(along[draws].mean(axis=1), [0.025, 0.975])
        between, between_low, between_high = between_samples(recordings, proxy, draws)
        row = RankedProxy(
            proxy=proxy,
            cost=(costs or {}).get(proxy, 0.0),
            rho=_correlation(along.mean()),
            low=_correlation(low),
            high=_correlation(high),
            between=between,
            between_low=between_low,
            between_high=between_high,
            paper=_correlation(paper.mean()),
        )
        rows.append(row)
    rows.sort(key=lambda row: (-row.rho, row.cost, row.proxy))
    return Ranking(tuple(rows), z_of_prompt)


def choose_proxy(ranking: Ranking) -> tuple[str, str]:
    """The cheapest proxy that is not worse than the best proxy along a trajectory, and the reason in words.

    Not worse means that the upper end of the one-sided 95 % interval of the best proxy's rho less the proxy's rho,
    paired over prompts, is at most 0.05. Constant proxies and proxies that are equal for all samples are chosen only if
    there are no others.
    """
    rows = [row for row in ranking.rows if row.rho != 0 and PROXIES[row.proxy].differs_by_sample] or ranking.rows
    best = max(rows, key=lambda row: row.rho)
    equal = [row for row in rows if row is best or worse_by(ranking, row.proxy, best.proxy) <= MARGIN]
    chosen = min(equal, key=lambda row: (row.cost, -row.rho))
    rho = f"rho {best.rho:.3f} ({best.low:.3f} to {best.high:.3f})"
    if chosen is best:
        reason = f"no cheaper proxy is within {MARGIN:g} of it" if len(equal) == 1 else "no equal proxy is cheaper"
    else:
        reason = (
            f"{chosen.proxy} is at most {max(0.0, worse_by(ranking, chosen.proxy, best.proxy)):.3f} worse and costs "
            f"{100 * chosen.cost:.1f} instead of {100 * best.cost:.1f} % of a full step"
        )
    prompts = len(ranking.z_of_prompt[best.proxy])
    few = "" if prompts >= ENOUGH_PROMPTS else f" ({prompts} prompts: intervals are wide below {ENOUGH_PROMPTS})"
    return chosen.proxy, f"{best.proxy} ranks the error of reuse best: {rho}; {reason}{few}"


def proxies_to_compare(ranking: Ranking, chosen: str, count: int = 3) -> tuple[str, ...]:
    """The proxies to compare by generated videos, at most `count`, no two of which read the same tensor.

    The first of the following are taken: the proxy `chosen`; the best proxy between samples; the proxies that run no
    part of a block, in the order of the ranking; all other proxies, in the order of the ranking. Constant proxies and
    proxies that are equal for all samples are left out, except `chosen`.
    """
    rows = [row for row in ranking.rows if row.rho != 0 and PROXIES[row.proxy].differs_by_sample]
    wanted = [chosen]
    wanted += [row.proxy for row in sorted(rows, key=lambda row: -row.between)[:1]]
    wanted += [row.proxy for row in rows if PROXIES[row.proxy].cost == 0]
    wanted += [row.proxy for row in rows]
    by_tensor: dict[str, str] = {}
    for proxy in wanted:
        by_tensor.setdefault(PROXIES[proxy].tensor_name, proxy)
    return tuple(by_tensor.values())[:count]


def worse_by(ranking: Ranking, proxy: str, best: str) -> float:
    """Upper bound of how much worse `proxy` is than the proxy `best`, in rho along a trajectory.

    It is the upper end of the one-sided 95 % interval of rho of `best` less rho of `proxy`, paired over prompts.
    """
    differences = np.tanh(ranking.z_of_prompt[best]) - np.tanh(ranking.z_of_prompt[proxy])
    return float(np.quantile(differences[draws_of(len(differences))].mean(axis=1), 0.95))


def between_samples(
    recordings: Sequence[Recording], proxy: str, draws: NDArray[np.int64]
) -> tuple[float, float, float]:
    """Correlation of a proxy with the error of reuse between samples at the same step, and its 95 % interval.

    Returns the correlation in [-1, 1] and both ends of the interval. Distances and errors are replaced by their ranks
    among the samples of a step, less the mean rank, and pooled over steps, lags and orders. For a proxy that depends on
    the step alone, and for a single sample, the correlation is 0. The interval is a bootstrap: row i of `draws`,
    `(resamples, prompts)`, holds the indices of resample i into the different prompts of `recordings`, sorted as texts.
    """
    products: dict[str, list[Array]] = defaultdict(list)
    distances = {lag: np.array([recording.accumulated(proxy, lag) for recording in recordings]) for lag in LAGS}
    for order in ORDERS:
        for lag in LAGS:
            errors = np.array([recording.prediction_error(order, lag, lag) for recording in recordings])
            known = np.isfinite(errors).all(axis=0) & np.isfinite(distances[lag]).all(axis=0)
            known[:FIRST_STEP] = False
            moved, error = (_centred_ranks(values[:, known]) for values in (distances[lag], errors))
            for recording, *terms in zip(
                recordings, (moved * error).sum(axis=1), (moved**2).sum(axis=1), (error**2).sum(axis=1), strict=True
            ):
                products[recording.prompt].append(np.array(terms))
    totals = np.array([np.sum(products[prompt], axis=0) for prompt in sorted(products)])
    pooled = totals[draws].sum(axis=1)
    low, high = np.quantile(_pooled_correlation(pooled), [0.025, 0.975])
    middle = _pooled_correlation(totals.sum(axis=0))
    return round(float(middle), 6), round(float(low), 6), round(float(high), 6)


def spearman_z(first: Array, second: Array) -> float:
    """Fisher's z of Spearman's rho over the places where both arrays are finite, in [-5, 5].

    It is 0 for fewer than 3 such places or constant values.
    """
    known = np.isfinite(first) & np.isfinite(second)
    first, second = first[known], second[known]
    if len(first) < 3 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return 0.0
    rho = float(spearmanr(first, second).statistic)
    if abs(rho) >= 1:
        return math.copysign(LARGEST_Z, rho)
    return float(np.clip(np.arctanh(rho), -LARGEST_Z, LARGEST_Z))


def _z_along(recording: Recording, proxy: str, orders: Sequence[int], warmup: float | None = None) -> float:
    """Fisher's z of proxy and error of reuse along one trajectory, mean over `orders` and lags; 0 for a constant proxy.

    The first share `warmup` of the steps is left out, by default the first two steps.
    """
    start = FIRST_STEP if warmup is None else math.ceil(recording.steps * warmup)
    if np.median(recording.distances[proxy]) < ROUNDING_ERROR:
        return 0.0
    pairs = [
        (recording.accumulated(proxy, lag)[start:], recording.prediction_error(order, lag, lag)[start:])
        for order in orders
        for lag in LAGS
    ]
    return float(np.mean([spearman_z(*pair) for pair in pairs]))


def _by_prompt(recordings: Sequence[Recording], value: Callable[[Recording], float]) -> Array:
    """For each prompt the mean of `value` over its samples, `(prompts,)`; prompts are sorted as texts.

    Samples of one prompt are averaged because they are not independent.
    """
    values: dict[str, list[float]] = defaultdict(list)
    for recording in recordings:
        values[recording.prompt].append(value(recording))
    return np.array([np.mean(values[prompt]) for prompt in sorted(values)])


def _centred_ranks(values: Array) -> Array:
    """Ranks of `values`, `(samples, steps)`, among the samples of each step, less the mean rank, in the same shape.

    At a step where the values are equal up to rounding, the result is 0.
    """
    ranks: Array = rankdata(values, axis=0) - (len(values) + 1) / 2
    scale = np.abs(values).mean(axis=0)
    ranks[:, np.ptp(values, axis=0) <= ROUNDING_ERROR * np.maximum(scale, 1.0)] = 0.0
    return ranks


def _pooled_correlation(terms: Array) -> Array:
    """Correlations of two quantities, `(...)`, from sums that are already pooled, `terms`, `(..., 3)`.

    The sums along the last axis are that of the products of both quantities, of the squares of the first and of the
    squares of the second. Both have mean 0; in `between_samples` they are centred ranks of proxy distances and of
    errors of reuse. The correlation is 0 where a sum of squares is 0.
    """
    product, first, second = np.moveaxis(terms, -1, 0)
    scale = np.sqrt(first * second)
    return np.asarray(np.divide(product, scale, out=np.zeros_like(product), where=scale > 0))


def _correlation(z: float) -> float:
    return round(math.tanh(z), 6)
