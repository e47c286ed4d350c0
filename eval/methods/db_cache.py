"""cache-dit's DBCache: alone, with its TaylorSeer calibrator, and with one decision for both guidance branches.

The first blocks run at every step; the others are reused while the residual of the first ones changes little.
"""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from diffusers import DiffusionPipeline

from galaxydit.eval.methods.caches import bytes_in, restored
from galaxydit.eval.methods.method import Setting, geometric_grid, method
from galaxydit.pipelines.trial import Attached

NONE, TAYLOR, DMD, FOCA = FORECASTERS = "none", "TaylorSeer", "DMD", "FoCa"  # cache-dit's calibrators


def _settings(steps: int, calibrator: Setting) -> list[Setting]:
    """Thresholds of the residual's change, each with two numbers of warm-up steps; `calibrator` may hold an `order`.

    One block runs at every step, because cache-dit's default of 8 leaves little to skip in the 10 blocks of wan-tiny.
    """
    return [
        {"threshold": threshold, "warmup_steps": warmup, "first_blocks": 1, **calibrator}
        for warmup in sorted({min(8, steps // 6), max(2, steps // 25)}, reverse=True)
        for threshold in geometric_grid(0.012, 1.2, 11)
    ]


def _held(manager: Any) -> int:
    contexts = manager._cached_context_manager.values()
    return bytes_in([[each.buffers, *each.get_calibrators(), *each.get_cfg_calibrators()] for each in contexts])


@contextmanager
def with_cache_dit(
    pipe: DiffusionPipeline, forecaster: str = NONE, order: int | None = None, **config: Any
) -> Iterator[Attached]:
    """cache-dit within the context, with options of its `DBCacheConfig`, a forecaster and the order of TaylorSeer."""
    os.environ.setdefault("CACHE_DIT_LOG_LEVEL", "ERROR")  # cache-dit reads it when it is imported
    import cache_dit

    options = {} if order is None else {"taylorseer_order": order}
    calibrator = None if forecaster == NONE else getattr(cache_dit, f"{forecaster}CalibratorConfig")(**options)
    with restored(pipe):
        cache_dit.enable_cache(
            pipe, cache_config=cache_dit.DBCacheConfig(Bn_compute_blocks=0, **config), calibrator_config=calibrator
        )
        manager = pipe._context_manager
        try:
            yield Attached(lambda: _held(manager))
        finally:
            cache_dit.disable_cache(pipe)


def _enabled(pipe: DiffusionPipeline, setting: Setting, *, joint: bool) -> AbstractContextManager[Attached]:
    """DBCache within the context; `joint`: one decision for both guidance branches."""
    return with_cache_dit(
        pipe,
        TAYLOR if "order" in setting else NONE,
        setting.get("order"),
        Fn_compute_blocks=setting["first_blocks"],
        residual_diff_threshold=setting["threshold"],
        max_warmup_steps=setting["warmup_steps"],
        cfg_diff_compute_separate=not joint,
    )


@method("DBCache", "cache-dit (github.com/vipshop/cache-dit)", lambda steps: _settings(steps, {}), needs="cache_dit")
@method(
    "DBCache + TaylorSeer",
    "cache-dit (github.com/vipshop/cache-dit)",
    lambda steps: _settings(steps, {"order": 1}),
    needs="cache_dit",
)
def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> AbstractContextManager[Attached]:
    return _enabled(pipe, setting, joint=False)


@method(
    "DBCache joint CFG",
    "cache-dit (github.com/vipshop/cache-dit)",
    lambda steps: _settings(steps, {}),
    needs="cache_dit",
)
def attach_joint(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> AbstractContextManager[Attached]:
    return _enabled(pipe, setting, joint=True)
