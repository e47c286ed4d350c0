"""cache-dit's DBCache: alone, with its TaylorSeer calibrator, with one decision for both branches, with step masks.

The first blocks run at every step; the others are reused while the residual of the first ones changes little. Under a
step computation mask, from cache-dit's presets or the plugin's plan, all blocks run at the full steps of the mask, and
at the others a forecaster extrapolates the residual of all blocks but the first.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from diffusers import DiffusionPipeline

from galaxydit.eval.methods.caches import bytes_in, restored
from galaxydit.eval.methods.fewer_steps import scheduled_steps
from galaxydit.eval.methods.method import Context, Setting, geometric_grid, method
from galaxydit.pipelines.trial import Attached

NONE, TAYLOR, DMD, FOCA = FORECASTERS = "none", "TaylorSeer", "DMD", "FoCa"  # cache-dit's calibrators
PRESETS = ("slow", "medium", "fast", "ultra")


def _settings(steps: int, **calibrator: Any) -> list[Setting]:
    """Thresholds of the residual's change, each with two numbers of warm-up steps; `calibrator` may hold an `order`.

    One block runs at every step, because cache-dit's default of 8 leaves little to skip in the 10 blocks of wan-tiny.
    """
    grid: list[Setting] = []
    for warmup in sorted({min(8, steps // 6), max(2, steps // 25)}, reverse=True):
        for threshold in geometric_grid(0.012, 1.2, 11):
            grid.append({"threshold": threshold, "warmup_steps": warmup, "first_blocks": 1, **calibrator})
    return grid


def _presets(steps: int) -> list[Setting]:
    listed: list[Setting] = []
    for forecaster in FORECASTERS:
        for preset in PRESETS:
            listed.append({"steps": steps, "preset": preset, "forecaster": forecaster})
    return listed


def _plans(steps: int) -> list[Setting]:
    """Faster plans than the wanted speedups, because the first block runs at every step."""
    grid: list[Setting] = []
    for forecaster in (TAYLOR, DMD):
        for speedup in geometric_grid(1.25, 8.0, 16):
            grid.append({"steps": steps, "plan": speedup, "forecaster": forecaster})
    return grid


def _cache_dit() -> Any:
    os.environ.setdefault("CACHE_DIT_LOG_LEVEL", "ERROR")  # cache-dit reads it when it is imported
    import cache_dit

    return cache_dit


@contextmanager
def _enabled(pipe: DiffusionPipeline, forecaster: str, order: int | None = None, **config: Any) -> Iterator[Attached]:
    """cache-dit within the context, with options of its `DBCacheConfig`, a forecaster and the order of TaylorSeer."""
    cache_dit = _cache_dit()
    options = {}
    if order is not None:
        options["taylorseer_order"] = order
    calibrator = None
    if forecaster != NONE:
        calibrator = getattr(cache_dit, f"{forecaster}CalibratorConfig")(**options)
    with restored(pipe):
        cache_dit.enable_cache(
            pipe, cache_config=cache_dit.DBCacheConfig(Bn_compute_blocks=0, **config), calibrator_config=calibrator
        )
        manager = pipe._context_manager
        try:
            yield Attached(lambda: _held(manager))
        finally:
            cache_dit.disable_cache(pipe)


def _held(manager: Any) -> int:
    held = []
    for context in manager._cached_context_manager.values():
        held += [context.buffers, *context.get_calibrators(), *context.get_cfg_calibrators()]
    return bytes_in(held)


def _by_threshold(pipe: DiffusionPipeline, setting: Setting, *, joint: bool) -> Context:
    return _enabled(
        pipe,
        TAYLOR if "order" in setting else NONE,
        setting.get("order"),
        Fn_compute_blocks=setting["first_blocks"],
        residual_diff_threshold=setting["threshold"],
        max_warmup_steps=setting["warmup_steps"],
        cfg_diff_compute_separate=not joint,
    )


def _by_mask(pipe: DiffusionPipeline, mask: Sequence[int], forecaster: str) -> Context:
    return _enabled(
        pipe,
        forecaster,
        Fn_compute_blocks=1,
        num_inference_steps=len(mask),
        steps_computation_mask=list(mask),
        steps_computation_policy="static",
    )


@method("DBCache", "cache-dit (github.com/vipshop/cache-dit)", _settings, needs="cache_dit")
@method(
    "DBCache + TaylorSeer",
    "cache-dit (github.com/vipshop/cache-dit)",
    lambda steps: _settings(steps, order=1),
    needs="cache_dit",
)
def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> Context:
    return _by_threshold(pipe, setting, joint=False)


@method("DBCache joint CFG", "cache-dit (github.com/vipshop/cache-dit)", _settings, needs="cache_dit")
def attach_joint(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> Context:
    return _by_threshold(pipe, setting, joint=True)


@method("DBCache preset masks", "cache-dit (github.com/vipshop/cache-dit)", _presets, needs="cache_dit")
def attach_preset(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> Context:
    mask = _cache_dit().steps_mask(total_steps=setting["steps"], mask_policy=setting["preset"])
    return _by_mask(pipe, mask, setting["forecaster"])


@method(
    "DBCache planned masks",
    "cache-dit (github.com/vipshop/cache-dit)",
    _plans,
    needs="cache_dit",
    follows_profile=True,
)
def attach_plan(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> Context:
    full = scheduled_steps(pipe, setting["plan"], setting["steps"], setting.get("profile"))
    mask = [int(step in full) for step in range(setting["steps"])]
    return _by_mask(pipe, mask, setting["forecaster"])
