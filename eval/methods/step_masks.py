"""cache-dit's step computation masks (SCM): full steps from its presets or from the plugin's plan.

At all other steps only the first block runs, and a forecaster of cache-dit extrapolates the residual of the others.
"""

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from diffusers import DiffusionPipeline

from galaxydit.eval.methods.db_cache import DMD, FORECASTERS, TAYLOR, with_cache_dit
from galaxydit.eval.methods.method import Setting, geometric_grid, method
from galaxydit.eval.methods.scheduled_levels import scheduled_steps
from galaxydit.pipelines.trial import Attached

PRESETS = ("slow", "medium", "fast", "ultra")


def _presets(steps: int) -> list[Setting]:
    return [
        {"steps": steps, "preset": preset, "forecaster": forecaster} for forecaster in FORECASTERS for preset in PRESETS
    ]


def _plans(steps: int) -> list[Setting]:
    """Faster plans than the wanted speedups, because the first block runs at every step."""
    return [
        {"steps": steps, "plan": speedup, "forecaster": forecaster}
        for forecaster in (TAYLOR, DMD)
        for speedup in geometric_grid(1.25, 8.0, 16)
    ]


def _masked(pipe: DiffusionPipeline, mask: Sequence[int], forecaster: str) -> AbstractContextManager[Attached]:
    return with_cache_dit(
        pipe,
        forecaster,
        Fn_compute_blocks=1,
        num_inference_steps=len(mask),
        steps_computation_mask=list(mask),
        steps_computation_policy="static",
    )


@method("DBCache preset masks", "cache-dit (github.com/vipshop/cache-dit)", _presets, needs="cache_dit")
def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> AbstractContextManager[Attached]:
    os.environ.setdefault("CACHE_DIT_LOG_LEVEL", "ERROR")
    import cache_dit

    mask = cache_dit.steps_mask(total_steps=setting["steps"], mask_policy=setting["preset"])
    return _masked(pipe, mask, setting["forecaster"])


@method(
    "DBCache planned masks",
    "cache-dit (github.com/vipshop/cache-dit)",
    _plans,
    needs="cache_dit",
    follows_profile=True,
)
def attach_plan(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> AbstractContextManager[Attached]:
    full = scheduled_steps(pipe, setting["plan"], setting["steps"], setting.get("profile"))
    return _masked(pipe, [int(step in full) for step in range(setting["steps"])], setting["forecaster"])
