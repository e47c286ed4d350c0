"""cache-dit's DBCache: alone, with its TaylorSeer calibrator, and with one decision for both guidance branches."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from diffusers import DiffusionPipeline

from galaxydit.eval.arena.attach import collect_tensors, leaving_no_trace, spread
from galaxydit.eval.arena.method import Attached, Method, Setting

SOURCE = "cache-dit (github.com/vipshop/cache-dit)"


def _settings(steps: int) -> Sequence[Setting]:
    """One block computed to decide (its default of 8 leaves a 12-block model little to skip), and two warm-ups."""
    return [
        {"threshold": threshold, "warmup_steps": warmup, "first_blocks": 1}
        for warmup in sorted({min(8, steps // 6), max(2, steps // 25)}, reverse=True)
        for threshold in spread(0.012, 1.2, 11)
    ]


def _taylor_settings(steps: int) -> Sequence[Setting]:
    return [{**setting, "order": 1} for setting in _settings(steps)]


def _attach(pipe: DiffusionPipeline, setting: Setting, joint: bool) -> Iterator[Attached]:
    os.environ.setdefault("CACHE_DIT_LOG_LEVEL", "ERROR")  # read when it is imported
    import cache_dit

    config = cache_dit.DBCacheConfig(
        Fn_compute_blocks=setting["first_blocks"],
        Bn_compute_blocks=0,
        residual_diff_threshold=setting["threshold"],
        max_warmup_steps=setting["warmup_steps"],
        cfg_diff_compute_separate=not joint,
    )
    calibrator = None
    if "order" in setting:
        calibrator = cache_dit.TaylorSeerCalibratorConfig(taylorseer_order=setting["order"])
    with leaving_no_trace(pipe):
        cache_dit.enable_cache(pipe, cache_config=config, calibrator_config=calibrator)
        manager = pipe._context_manager
        try:
            yield Attached(lambda: _held(manager))
        finally:
            cache_dit.disable_cache(pipe)


def _held(manager: Any) -> int:
    kept: dict[int, int] = {}
    for context in manager._cached_context_manager.values():
        calibrators = (*context.get_calibrators(), *context.get_cfg_calibrators())
        collect_tensors([context.buffers, *calibrators], kept)
    return sum(kept.values())


def _method(name: str, settings: Callable[[int], Sequence[Setting]], joint: bool = False) -> Method:
    def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> Iterator[Attached]:
        return _attach(pipe, setting, joint)

    return Method(name, SOURCE, settings, contextmanager(attach), needs="cache_dit")


METHODS = (
    _method("DBCache", _settings),
    _method("DBCache + TaylorSeer", _taylor_settings),
    _method("DBCache joint CFG", _settings, joint=True),
)
