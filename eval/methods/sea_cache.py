"""SeaCache (arXiv 2602.18993): reuse the block stack's residual while the spectrally filtered latent changes little.

At order 0 a reused step repeats the last residual, at order 1 it extrapolates the last two residuals.
"""

from typing import Any

from diffusers import DiffusionPipeline, SeaCacheConfig

from galaxydit.eval.methods.accumulation import share_of_steps
from galaxydit.eval.methods.caches import enabled
from galaxydit.eval.methods.method import Context, Setting, geometric_grid, method


def _settings(steps: int) -> list[Setting]:
    """diffusers' options and their defaults: 2 consecutive reuses, 3, or no limit, then with more computed first steps.

    The defaults of the last computed steps, 1, and of the exponent, the authors' 3 for video, stay.
    """
    fine = geometric_grid(0.025, 2.5, 17)
    few = geometric_grid(0.05, 0.8, 6)
    firsts = sorted({share_of_steps(steps, share) for share in (0.04, 0.1)} - {1})
    kinds = [*((most, 1, fine) for most in (2, 3, 0)), *((0, first, few) for first in firsts)]
    grid: list[Setting] = []
    for most, first, thresholds in kinds:
        for threshold in thresholds:
            grid.append({"threshold": threshold, "max_consecutive_cached": most, "retention_steps": first})
    return grid


def _published_settings(steps: int) -> list[Setting]:
    """The authors' thresholds for Wan2.1-1.3B (0.2, 0.35), and those of arXiv 2610.10457 (0.28, 0.47, 0.7), without a
    limit on consecutive reuse; diffusers' default exponent is the authors' 3.
    """
    return [{"threshold": value, "max_consecutive_cached": 0} for value in (0.2, 0.28, 0.35, 0.47, 0.7)]


@method("SeaCache order 0", "SeaCache, arXiv 2602.18993; diffusers", _settings)
@method("SeaCache published", "SeaCache, arXiv 2602.18993; diffusers", _published_settings, tuned=False)
def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> Context:
    return enabled(pipe, SeaCacheConfig(residual_order=0, **setting))


@method("SeaCache order 1", "SeaCache, arXiv 2602.18993; diffusers", _settings)
def attach_order_1(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> Context:
    return enabled(pipe, SeaCacheConfig(residual_order=1, **setting))
