"""Rank proxies by Spearman correlation with the change of the guided prediction (GalaxyDiT, arXiv 2512.03451)."""

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from scipy.stats import spearmanr

from galaxydit.calibration.recording import LAGS, Array, Recording
from galaxydit.profiles.schema import RankedProxy
from galaxydit.proxies import PROXIES

WARMUP = 0.2
RESAMPLES = 2000
ROUNDING_ERROR = 1e-6  # a proxy whose median distance is below this is constant up to float32 rounding
LARGEST_Z = 5.0  # a correlation of 0.9999; a few steps cannot support more


def rank_proxies(recordings: Sequence[Recording]) -> tuple[RankedProxy, ...]:
    """Rank all proxies, best first.

    For each sample and each lag of 1 to 4 steps, Spearman's rho over the steps after the warm-up between the proxy's
    distance summed over the lag (what a policy compares with its threshold) and the relative change of the guided
    prediction over the same steps; 0 for a constant proxy. Correlations are averaged through Fisher's z. The interval
    is the 95 % bootstrap over prompts.
    """
    prompts = len({recording.prompt for recording in recordings})
    draws = np.random.default_rng(0).integers(prompts, size=(RESAMPLES, prompts))
    ranked = []
    for proxy in recordings[0].distances:
        after, whole = (_z_by_prompt(recordings, proxy, warmup) for warmup in (WARMUP, 0.0))
        means = after.mean(axis=1)
        interval = np.quantile(means[draws].mean(axis=1), [0.025, 0.975])
        rho, low, high, whole_run = map(_correlation, (means.mean(), *interval, whole.mean()))
        by_lag = tuple(map(_correlation, after.mean(axis=0)))
        ranked.append(RankedProxy(proxy, PROXIES[proxy].cost, rho, low, high, whole_run, by_lag))
    return tuple(sorted(ranked, key=lambda row: (-row.rho, row.cost, row.proxy)))


def choose_proxy(ranking: Sequence[RankedProxy]) -> tuple[str, str]:
    """The cheapest proxy that differs by sample and whose interval overlaps the best one's, and the reason in words."""
    moving = [row for row in ranking if (row.low, row.high) != (0, 0)] or ranking  # a constant proxy has 0 to 0
    ranking = [row for row in moving if PROXIES[row.proxy].differs_by_sample] or moving
    best = max(ranking, key=lambda row: row.rho)
    overlapping = [row for row in ranking if row.high >= best.low]
    chosen = min(overlapping, key=lambda row: (row.cost, -row.rho))
    if chosen is not best:
        reason = (
            f"{chosen.proxy} with {chosen.rho:.3f} ({chosen.low:.3f} to {chosen.high:.3f}) cannot be told from it and "
            f"is read for {chosen.cost:.1f} instead of {best.cost:.1f} of a block"
        )
    elif len(overlapping) > 1:
        reason = f"{len(overlapping) - 1} more overlap it, none of them cheaper"
    else:
        reason = "no other interval overlaps it"
    rho = f"rho {best.rho:.3f} ({best.low:.3f} to {best.high:.3f})"
    return chosen.proxy, f"{best.proxy} ranks the change of the guided prediction best: {rho}; {reason}"


def spearman_z(first: Array, second: Array) -> float:
    """Fisher's z of Spearman's rho where both are finite, in [-5, 5]; 0 for fewer than 3 values or constant ones."""
    known = np.isfinite(first) & np.isfinite(second)
    first, second = first[known], second[known]
    if len(first) < 3 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return 0.0
    rho = float(spearmanr(first, second).statistic)
    if abs(rho) >= 1:
        return math.copysign(LARGEST_Z, rho)
    return float(np.clip(np.arctanh(rho), -LARGEST_Z, LARGEST_Z))


def _z_by_prompt(recordings: Sequence[Recording], proxy: str, warmup: float) -> Array:
    """Fisher's z, `(prompts, lags)`: means over the samples of each prompt, because those are not independent."""
    found: dict[str, list[list[float]]] = defaultdict(list)
    for recording in recordings:
        start = math.ceil(recording.steps * warmup)
        moves = np.median(recording.distances[proxy]) >= ROUNDING_ERROR
        pairs = ((recording.accumulated(proxy, lag), recording.guided_change(lag)) for lag in LAGS)
        found[recording.prompt].append([spearman_z(a[start:], b[start:]) if moves else 0.0 for a, b in pairs])
    return np.array([np.mean(found[prompt], axis=0) for prompt in sorted(found)])


def _correlation(z: float) -> float:
    return round(math.tanh(z), 6)
