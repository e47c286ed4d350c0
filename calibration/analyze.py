"""How far a profile carries over: the redundancy pattern under other prompts, steps, schedulers and guidance scales.

Asked by DiTCacheAnalysis (arXiv 2411.13588), which finds the pattern of a model stable over prompts.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np
from diffusers import DiffusionPipeline, FlowMatchEulerDiscreteScheduler
from numpy.typing import NDArray
from scipy.stats import spearmanr

from galaxydit.calibration.fit import all_points, apply_map
from galaxydit.calibration.provenance import scheduler_shift
from galaxydit.calibration.rank import rank_proxies
from galaxydit.calibration.record import record_sample
from galaxydit.calibration.recording import Recording
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.profile import Profile

GRID = 64

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Stability:
    """One line of the table.

    Attributes:
        change: what is unlike the calibration.
        samples: recordings compared.
        pattern_rho: Spearman's rho between the redundancy per unit of sigma here and in the calibration.
        pattern_apart: mean absolute difference of the two, relative to the calibration's mean.
        error_ratio: true error of the prediction / error that the profile expects, mean over what could be reused; 1 is
            perfect.
        proxy_rho: rho of the profile's proxy here.
        best_proxy: the proxy that ranks best here.
    """

    change: str
    samples: int
    pattern_rho: float
    pattern_apart: float
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
    """The table: each prompt of the calibration against all others, then a few samples under each other setting."""
    steps, guidance = settings.steps or recordings[0].steps, settings.guidance_scale or 1.0
    shift = scheduler_shift(pipe) or 1.0
    variants: list[tuple[str, GenerationSettings, str | None]] = [
        *((f"{count} steps", replace(settings, steps=count), None) for count in (steps * 3 // 5, steps * 2)),
        *((f"guidance {g:g}", replace(settings, guidance_scale=g), None) for g in (guidance / 2, guidance * 1.5)),
        *((f"flow shift {s:g}", settings, f"shift {s}") for s in (shift / 2, shift * 1.5)),
        ("Euler scheduler", settings, "euler"),
    ]
    progress(0, len(variants) * samples)
    rows = [
        compare(f"prompt {i + 1}", profile, [recording], [*recordings[:i], *recordings[i + 1 :]])
        for i, recording in enumerate(recordings)
    ]
    rows = [_worst_and_mean(rows)] if rows else []
    for place, (name, changed, scheduler) in enumerate(variants):
        taken = []
        for index in range(samples):
            source = recordings[index % len(recordings)]
            taken.append(_record(pipe, source, changed, scheduler))
            progress(place * samples + index + 1, len(variants) * samples)
        rows.append(compare(name, profile, taken, recordings))
    return rows


def compare(change: str, profile: Profile, here: Sequence[Recording], there: Sequence[Recording]) -> Stability:
    """Recordings under one setting against those of the calibration."""
    low = max(min(r.sigmas) for r in (*here, *there))
    high = min(max(r.sigmas[1:]) for r in (*here, *there))
    grid = np.linspace(low, high, GRID)
    own, known = _pattern(here, grid), _pattern(there, grid)
    points = all_points(here, profile.proxy, profile.order)
    expected = apply_map(profile.error_map, points)
    ranking = rank_proxies(here)
    return Stability(
        change=change,
        samples=len(here),
        pattern_rho=float(spearmanr(own, known).statistic),
        pattern_apart=float(np.mean(np.abs(own - known)) / np.mean(known)),
        error_ratio=float(np.mean(points.error) / np.mean(expected)),
        proxy_rho=next(row.rho for row in ranking if row.proxy == profile.proxy),
        best_proxy=ranking[0].proxy,
    )


def _pattern(recordings: Sequence[Recording], grid: Array) -> Array:
    """Mean change of the guided prediction per unit of sigma, at each noise level of the grid."""
    curves = []
    for recording in recordings:
        sigmas = np.array(recording.sigmas)
        rate = recording.guided_change(1)[1:] / np.maximum(1e-9, sigmas[:-1] - sigmas[1:])
        middle = 0.5 * (sigmas[:-1] + sigmas[1:])
        curves.append(np.interp(grid, middle[::-1], rate[::-1]))
    return np.mean(curves, axis=0)


def _record(
    pipe: DiffusionPipeline, source: Recording, settings: GenerationSettings, scheduler: str | None
) -> Recording:
    original = pipe.scheduler
    if scheduler == "euler":
        pipe.scheduler = FlowMatchEulerDiscreteScheduler(shift=scheduler_shift(pipe) or 1.0)
    elif scheduler is not None:
        settings = replace(settings, flow_shift=float(scheduler.removeprefix("shift ")))
    try:
        return record_sample(pipe, source.prompt, settings, source.seed)[0]
    finally:
        pipe.scheduler = original


def _worst_and_mean(rows: Sequence[Stability]) -> Stability:
    """One line for all prompts: means, and in words the prompt least like the others."""
    worst = min(rows, key=lambda row: row.pattern_rho)
    return Stability(
        change=f"one prompt against the others (worst rho {worst.pattern_rho:.2f})",
        samples=len(rows),
        pattern_rho=fmean(row.pattern_rho for row in rows),
        pattern_apart=fmean(row.pattern_apart for row in rows),
        error_ratio=fmean(row.error_ratio for row in rows),
        proxy_rho=fmean(row.proxy_rho for row in rows),
        best_proxy=max({row.best_proxy for row in rows}, key=[row.best_proxy for row in rows].count),
    )
