"""Rank proxies by Spearman correlation with the error of reuse, along a trajectory and between samples.

The ranking along a trajectory is GalaxyDiT's (arXiv 2512.03451). Along it everything has a trend in time, so a clock
also ranks high; between samples at one step there is none. A lag is the number of steps since the last full step.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata

from galaxydit.calibration.bootstrap import FEWEST_PROMPTS, draws_of, resampled_means
from galaxydit.calibration.recording import LAGS, ORDERS, Array, Recording
from galaxydit.profiles.evidence import RankedProxy
from galaxydit.proxies import PROXIES

FIRST_STEP = 2  # recipes reuse steps after two full steps
PAPER_WARMUP = 0.2  # share of first steps that arXiv 2512.03451 never reuses
MARGIN = 0.05  # of rho, by which a cheaper proxy may be worse than the best proxy
ROUNDING_ERROR = 1e-6  # a proxy whose median distance is below this is constant up to float32 rounding
LARGEST_Z = 5.0  # a correlation of 0.9999; a few steps cannot support more
ENOUGH_PROMPTS = 16  # fewer leave intervals wide, so that a cheaper proxy is seldom shown to be as good


@dataclass(frozen=True)
class Ranking:
    """A row for each proxy, the best along a trajectory first, and Fisher's z along a trajectory by prompt."""

    rows: tuple[RankedProxy, ...]
    z_of_prompt: Mapping[str, Array]


def rank_proxies(recordings: Sequence[Recording], costs: Mapping[str, float] | None = None) -> Ranking:
    """Rank all proxies: summed distances against the error of reuse, averaged over lags and orders by Fisher's z.

    Intervals are 95 % bootstraps over prompts. `costs` are seconds of reading a proxy / seconds of a full step.
    """
    rows = []
    z_of_prompt = {}
    for proxy in recordings[0].distances:
        along = _z_along(recordings, proxy, ORDERS)
        z_of_prompt[proxy] = along
        low, high = np.quantile(resampled_means(along), [0.025, 0.975])
        between, between_low, between_high = between_samples(recordings, proxy)
        row = RankedProxy(
            proxy=proxy,
            cost=(costs or {}).get(proxy, 0.0),
            rho=_correlation(along.mean()),
            low=_correlation(low),
            high=_correlation(high),
            between=between,
            between_low=between_low,
            between_high=between_high,
            paper=_correlation(_z_along(recordings, proxy, (0,), PAPER_WARMUP).mean()),
        )
        rows.append(row)
    rows.sort(key=lambda row: (-row.rho, row.cost, row.proxy))
    return Ranking(tuple(rows), z_of_prompt)


def choose_proxy(ranking: Ranking) -> tuple[str, str]:
    """The cheapest proxy that is at most 0.05 worse than the best along a trajectory (`worse_by`), and why.

    Constant proxies and those that are equal for all samples are chosen only if there are no others.
    """
    rows = _rows_that_vary(ranking) or ranking.rows
    best = max(rows, key=lambda row: row.rho)
    equal = []
    for row in rows:
        if row is best or worse_by(ranking, row.proxy, best.proxy) <= MARGIN:
            equal.append(row)
    chosen = min(equal, key=lambda row: (row.cost, -row.rho))
    prompts = len(ranking.z_of_prompt[best.proxy])
    rho = f"rho {best.rho:.3f}"
    if prompts >= FEWEST_PROMPTS:
        rho += f" ({best.low:.3f} to {best.high:.3f})"
    if chosen is not best:
        worse = max(0.0, worse_by(ranking, chosen.proxy, best.proxy))
        costs = f"{100 * chosen.cost:.1f} instead of {100 * best.cost:.1f} % of a full step"
        reason = f"{chosen.proxy} is at most {worse:.3f} worse and costs {costs}"
    elif len(equal) == 1:
        reason = f"no cheaper proxy is within {MARGIN:g} of it"
    else:
        reason = "no equal proxy is cheaper"
    if FEWEST_PROMPTS <= prompts < ENOUGH_PROMPTS:
        reason += f" ({prompts} prompts: intervals are wide below {ENOUGH_PROMPTS})"
    elif prompts < FEWEST_PROMPTS:
        reason += f" ({prompts} prompt{'s' * (prompts > 1)}: an interval needs {FEWEST_PROMPTS})"
    return chosen.proxy, f"{best.proxy} ranks the error of reuse best: {rho}; {reason}"


def _rows_that_vary(ranking: Ranking) -> list[RankedProxy]:
    """The rows of proxies that are neither constant nor equal for all samples."""
    return [row for row in ranking.rows if row.rho != 0 and PROXIES[row.proxy].differs_by_sample]


def proxies_to_compare(ranking: Ranking, chosen: str) -> tuple[str, ...]:
    """At most three proxies of different tensors to compare by videos, none of them constant: `chosen`, the best
    between samples, those that run no block, then all others, by rank.
    """
    rows = _rows_that_vary(ranking)
    wanted = [chosen]
    if rows:
        wanted.append(max(rows, key=lambda row: row.between).proxy)
    wanted += [row.proxy for row in rows if PROXIES[row.proxy].cost == 0]
    wanted += [row.proxy for row in rows]
    # Proxies of one tensor differ by their distance alone, so the first one stands for all.
    by_tensor: dict[str, str] = {}
    for proxy in wanted:
        by_tensor.setdefault(PROXIES[proxy].tensor_name, proxy)
    return tuple(by_tensor.values())[:3]


def worse_by(ranking: Ranking, proxy: str, best: str) -> float:
    """Upper end of the one-sided 95 % interval of rho of `best` less rho of `proxy`, paired over prompts."""
    differences = np.tanh(ranking.z_of_prompt[best]) - np.tanh(ranking.z_of_prompt[proxy])
    return float(np.quantile(resampled_means(differences), 0.95))


def between_samples(recordings: Sequence[Recording], proxy: str) -> tuple[float, float, float]:
    """Correlation of a proxy with the error of reuse between samples at the same step, and its 95 % interval.

    Ranks among the samples of a step, less their mean, are pooled over steps, lags and orders; a clock has 0.
    """
    products: dict[str, list[Array]] = defaultdict(list)
    for order in ORDERS:
        for lag in LAGS:
            terms = _terms_between(recordings, proxy, order, lag)
            for recording, of_sample in zip(recordings, terms, strict=True):
                products[recording.prompt].append(of_sample)
    # By prompt, because samples of one prompt are not independent.
    totals = np.array([np.sum(products[prompt], axis=0) for prompt in sorted(products)])
    resampled = totals[draws_of(len(totals))].sum(axis=1)
    low, high = np.quantile(_pooled_correlation(resampled), [0.025, 0.975])
    middle = _pooled_correlation(totals.sum(axis=0))
    return round(float(middle), 6), round(float(low), 6), round(float(high), 6)


def _terms_between(recordings: Sequence[Recording], proxy: str, order: int, lag: int) -> Array:
    """`(samples, 3)`: sums over steps of the product of the ranks of distance and error, and of their squares."""
    distances = np.array([recording.accumulated(proxy, lag) for recording in recordings])
    errors = np.array([recording.errors_of_reuse[order, lag] for recording in recordings])
    known = np.isfinite(errors).all(axis=0) & np.isfinite(distances).all(axis=0)
    known[:FIRST_STEP] = False
    moved = _centred_ranks(distances[:, known])
    error = _centred_ranks(errors[:, known])
    return np.stack([(moved * error).sum(axis=1), (moved**2).sum(axis=1), (error**2).sum(axis=1)], axis=1)


def spearman_z(first: Array, second: Array) -> float:
    """Fisher's z of Spearman's rho where both are finite, in [-5, 5]; 0 for fewer than 3 places or constant values."""
    known = np.isfinite(first) & np.isfinite(second)
    first = first[known]
    second = second[known]
    if len(first) < 3 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return 0.0
    # Spearman's rho is the correlation of the ranks; `scipy.stats.spearmanr` would also compute a p-value.
    rho = float(np.corrcoef(rankdata(np.stack([first, second]), axis=1))[0, 1])
    if abs(rho) >= 1:
        return math.copysign(LARGEST_Z, rho)
    return float(np.clip(np.arctanh(rho), -LARGEST_Z, LARGEST_Z))


def _z_along(recordings: Sequence[Recording], proxy: str, orders: Sequence[int], warmup: float | None = None) -> Array:
    """Fisher's z along trajectories after the share `warmup` (by default two steps), mean over orders and lags.

    By sorted prompt, `(prompts,)`, the mean over its samples, which are not independent.
    """
    values: dict[str, list[float]] = defaultdict(list)
    for recording in recordings:
        if not np.median(recording.distances[proxy]) >= ROUNDING_ERROR:  # a median of NaN counts as constant, too
            values[recording.prompt].append(0.0)
            continue
        if warmup is None:
            start = FIRST_STEP
        else:
            start = math.ceil(recording.steps * warmup)
        z = []
        for order in orders:
            for lag in LAGS:
                distance = recording.accumulated(proxy, lag)[start:]
                error = recording.errors_of_reuse[order, lag][start:]
                z.append(spearman_z(distance, error))
        values[recording.prompt].append(float(np.mean(z)))
    return np.array([np.mean(values[prompt]) for prompt in sorted(values)])


def _centred_ranks(values: Array) -> Array:
    """Ranks among the samples of each step less the mean rank, `(samples, steps)`; 0 where all are equal."""
    ranks: Array = rankdata(values, axis=0) - (len(values) + 1) / 2
    scale = np.abs(values).mean(axis=0)
    ranks[:, np.ptp(values, axis=0) <= ROUNDING_ERROR * np.maximum(scale, 1.0)] = 0.0
    return ranks


def _pooled_correlation(terms: Array) -> Array:
    """Correlations from pooled sums of products and of both squares, `(..., 3)`; 0 where a sum of squares is 0."""
    product, first, second = np.moveaxis(terms, -1, 0)
    scale = np.sqrt(first * second)
    return np.asarray(np.divide(product, scale, out=np.zeros_like(product), where=scale > 0))


def _correlation(z: float) -> float:
    return round(math.tanh(z), 6)
