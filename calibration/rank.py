"""Rank proxies by Spearman correlation with the change of the guided prediction (GalaxyDiT, arXiv 2512.03451)."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from galaxydit.calibration.recording import LAGS, Recording
from galaxydit.profiles.schema import RankedProxy
from galaxydit.proxies import PROXIES

WARMUP = 0.2
RESAMPLES = 2000
ROUNDING_ERROR = 1e-6  # a proxy whose median distance is below this is constant up to float32 rounding
LARGEST_Z = 5.0  # a correlation of 0.9999; a few steps cannot support more

Array = NDArray[np.float64]


def rank_proxies(recordings: Sequence[Recording], *, seed: int = 0) -> tuple[RankedProxy, ...]:
    """Rank all proxies, best first.

    For each sample and each lag of 1 to 4 steps, Spearman's rho over the steps after the warm-up between the proxy's
    distance summed over the lag (what a policy compares with its threshold) and the relative change of the guided
    prediction over the same steps; 0 for a constant proxy. Correlations are averaged through Fisher's z. The interval
    is the 95 % bootstrap over prompts.

    Raises:
        ValueError: no recordings.
    """
    if not recordings:
        raise ValueError("recordings is empty, which is not allowed: expected at least one")
    prompts = sorted({recording.prompt for recording in recordings})
    draws = np.random.default_rng(seed).integers(len(prompts), size=(RESAMPLES, len(prompts)))
    ranked = []
    for proxy in recordings[0].proxies:
        after = _by_prompt(np.array([_z_by_lag(r, proxy, WARMUP) for r in recordings]), recordings, prompts)
        whole = _by_prompt(np.array([_z_by_lag(r, proxy, 0.0) for r in recordings]), recordings, prompts)
        means = after.mean(axis=1)
        low, high = np.quantile(means[draws].mean(axis=1), [0.025, 0.975])
        ranked.append(
            RankedProxy(
                proxy=proxy,
                cost=PROXIES[proxy].cost,
                rho=_correlation(means.mean()),
                low=_correlation(low),
                high=_correlation(high),
                whole_run=_correlation(whole.mean()),
                by_lag=tuple(_correlation(z) for z in after.mean(axis=0)),
            )
        )
    return tuple(sorted(ranked, key=lambda row: (-row.rho, row.cost, row.proxy)))


def choose_proxy(ranking: Sequence[RankedProxy]) -> tuple[str, str]:
    """The cheapest proxy whose interval overlaps that of the best one, and the reason in words.

    A proxy that is the same for every sample is not chosen.
    """
    ranking = [row for row in ranking if PROXIES[row.proxy].differs_by_sample] or ranking
    best = max(ranking, key=lambda row: row.rho)
    overlapping = [row for row in ranking if row.high >= best.low]
    chosen = min(overlapping, key=lambda row: (row.cost, -row.rho))
    text = (
        f"{best.proxy} ranks the change of the guided prediction best: rho {best.rho:.3f} "
        f"({best.low:.3f} to {best.high:.3f})"
    )
    others = len(overlapping) - 1
    if chosen is best:
        tail = "no other interval overlaps it" if not others else f"{others} more overlap it, none of them cheaper"
        return best.proxy, f"{text}; {tail}"
    return chosen.proxy, (
        f"{text}; {chosen.proxy} with {chosen.rho:.3f} ({chosen.low:.3f} to {chosen.high:.3f}) cannot be told from it "
        f"and is read for {chosen.cost:.1f} instead of {best.cost:.1f} of a block"
        if chosen.cost < best.cost
        else f"{text}; {chosen.proxy} costs as little"
    )


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


def _z_by_lag(recording: Recording, proxy: str, warmup: float) -> list[float]:
    start = math.ceil(recording.steps * warmup)
    if np.median(recording.distances[proxy]) < ROUNDING_ERROR:
        return [0.0] * len(LAGS)
    return [spearman_z(recording.accumulated(proxy, lag)[start:], recording.guided_change(lag)[start:]) for lag in LAGS]


def _by_prompt(values: Array, recordings: Sequence[Recording], prompts: Sequence[str]) -> Array:
    """Means over the samples of each prompt, `(prompts, lags)`, because samples of one prompt are not independent."""
    return np.array(
        [values[[i for i, r in enumerate(recordings) if r.prompt == prompt]].mean(axis=0) for prompt in prompts]
    )


def _correlation(z: float) -> float:
    return round(math.tanh(z), 6)
