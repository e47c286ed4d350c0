"""Measure how far a profile carries over to other prompts, steps, schedulers and guidance scales.

The redundancy pattern is the change of the guided prediction per unit of sigma. DiTCacheAnalysis (arXiv 2411.13588)
finds it stable over prompts.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, mode

import numpy as np
from diffusers import DiffusionPipeline, FlowMatchEulerDiscreteScheduler
from numpy.typing import NDArray
from scipy.stats import spearmanr

from galaxydit.calibration.fit import apply_map, points_of
from galaxydit.calibration.generation_observer import record_sample
from galaxydit.calibration.provenance import scheduler_shift
from galaxydit.calibration.rank import rank_proxies
from galaxydit.calibration.recording import Recording
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.profiles.schema import Profile

GRID = 64

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Stability:
    """How far the profile holds under one change of settings.

    Attributes:
        change: of the settings, in words.
        samples: recordings compared.
        pattern_rho: Spearman's rho between the redundancy patterns under the change and in the calibration.
        pattern_difference: mean absolute difference of the two patterns / mean of the calibration's.
        error_ratio: mean true error of the prediction / mean error that the profile expects; 1 is perfect.
        proxy_rho: rho of the profile's proxy under the change.
        best_proxy: the proxy that ranks best under the change.
    """

    change: str
    samples: int
    pattern_rho: float
    pattern_difference: float
    error_ratio: float
    proxy_rho: float
    best_proxy: str


def analyze(
    pipe: DiffusionPipeline,
    profile: Profile,
    recordings: Sequence[Recording],
    settings: GenerationSettings,
    *,
    samples: int = 3,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Stability]:
    """Compare each recording with all others, and then `samples` new recordings for each change of settings."""
    steps, guidance = settings.steps or recordings[0].steps, settings.guidance_scale or 1.0
    shift = scheduler_shift(pipe) or 1.0
    changes: list[tuple[str, GenerationSettings, bool]] = [
        *((f"{count} steps", replace(settings, steps=count), False) for count in (steps * 3 // 5, steps * 2)),
        *((f"guidance {g:g}", replace(settings, guidance_scale=g), False) for g in (guidance / 2, guidance * 1.5)),
        *((f"flow shift {s:g}", replace(settings, flow_shift=s), False) for s in (shift / 2, shift * 1.5)),
        ("Euler scheduler", settings, True),
    ]
    progress(0, len(changes) * samples)
    rows = [
        compare(f"prompt {i + 1}", profile, [recording], [*recordings[:i], *recordings[i + 1 :]])
        for i, recording in enumerate(recordings)
    ]
    rows = [_mean_of(rows)] if rows else []
    for place, (name, changed, with_euler) in enumerate(changes):
        recorded = []
        for index in range(samples):
            recorded.append(_record(pipe, recordings[index % len(recordings)], changed, with_euler))
            progress(place * samples + index + 1, len(changes) * samples)
        rows.append(compare(name, profile, recorded, recordings))
    return rows


def compare(change: str, profile: Profile, here: Sequence[Recording], there: Sequence[Recording]) -> Stability:
    """Compare recordings under a change of settings, `here`, with those of the calibration, `there`."""
    low = max(min(r.sigmas) for r in (*here, *there))
    high = min(max(r.sigmas[1:]) for r in (*here, *there))
    grid = np.linspace(low, high, GRID)
    own, known = _pattern(here, grid), _pattern(there, grid)
    points = points_of(here, profile.recipe.proxy, profile.recipe.order)
    expected = apply_map(profile.recipe.error_map, points)
    ranking = rank_proxies(here)
    return Stability(
        change=change,
        samples=len(here),
        pattern_rho=float(spearmanr(own, known).statistic),
        pattern_difference=float(np.mean(np.abs(own - known)) / np.mean(known)),
        error_ratio=float(np.mean(points.error) / np.mean(expected)),
        proxy_rho=next(row.rho for row in ranking if row.proxy == profile.recipe.proxy),
        best_proxy=ranking[0].proxy,
    )


def _pattern(recordings: Sequence[Recording], grid: Array) -> Array:
    """Mean redundancy pattern at the noise levels of the grid, `(grid,)`."""
    curves = []
    for recording in recordings:
        sigmas = np.array(recording.sigmas)
        rate = recording.guided_change(1)[1:] / np.maximum(1e-9, sigmas[:-1] - sigmas[1:])
        middle = 0.5 * (sigmas[:-1] + sigmas[1:])
        known = np.isfinite(rate)
        curves.append(np.interp(grid, middle[known][::-1], rate[known][::-1]))
    return np.mean(curves, axis=0)


def _record(pipe: DiffusionPipeline, source: Recording, settings: GenerationSettings, with_euler: bool) -> Recording:
    original = pipe.scheduler
    if with_euler:
        pipe.scheduler = FlowMatchEulerDiscreteScheduler(shift=scheduler_shift(pipe) or 1.0)
    try:
        return record_sample(pipe, source.prompt, settings, source.seed)[0]
    finally:
        pipe.scheduler = original


def _mean_of(rows: Sequence[Stability]) -> Stability:
    """The mean over prompts; `change` names the lowest correlation."""
    worst = min(rows, key=lambda row: row.pattern_rho)
    return Stability(
        change=f"one prompt against the others (worst rho {worst.pattern_rho:.2f})",
        samples=len(rows),
        pattern_rho=fmean(row.pattern_rho for row in rows),
        pattern_difference=fmean(row.pattern_difference for row in rows),
        error_ratio=fmean(row.error_ratio for row in rows),
        proxy_rho=fmean(row.proxy_rho for row in rows),
        best_proxy=mode(row.best_proxy for row in rows),
    )
