"""The timed methods, and the settings at which their decisions can be forced through the input.

Thresholds mean nothing on random weights. So a reused step gets the latent and the timestep of the previous step, for
which every method measures no change, and a full step gets other noise, for which every method measures a large change.
Each method runs its own code, its decision included, along the same steps.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from galaxydit import FixedSteps, GalaxyDiTConfig, Threshold
from galaxydit.eval.compare.method import Attached, Method, Setting
from galaxydit.eval.compare.methods import db_cache, fewer_steps, first_block_cache, sea_cache
from galaxydit.eval.compare.methods.galaxydit_methods import accelerated
from galaxydit.eval.latency.forced_steps import ForcedSteps

NO_CHANGE = 1e-3  # between 0, for equal inputs, and the change of tens of percent that other noise causes
SEA_NO_CHANGE = 0.5  # SeaCache's filter depends slightly on sigma; other noise changes its output by more than 1


@dataclass(frozen=True)
class TimedMethod:
    """A method of the comparison as it is timed.

    Attributes:
        method: it is attached to an object with a `transformer` alone, since nothing else of a pipeline exists here.
        setting: returns the setting for forced steps and the name of a proxy.
        essential: measured before the others.
        without_proxy: name of the method that does the same without reading a proxy; the difference is the proxy's
            cost.
    """

    method: Method
    setting: Callable[[ForcedSteps, str], Setting] = lambda forced, proxy: {}
    essential: bool = False
    without_proxy: str | None = None

    def attach(self, transformer: Any, forced: ForcedSteps, proxy: str) -> Any:
        """Return the context manager of the method on a transformer."""
        return self.method.attach(SimpleNamespace(transformer=transformer), self.setting(forced, proxy), None)


def _galaxydit(pipe: Any, setting: Setting, calibration: Any) -> AbstractContextManager[Attached]:
    return accelerated(pipe.transformer, config=GalaxyDiTConfig(**setting))


@contextmanager
def _cache_dit(pipe: Any, setting: Setting, calibration: Any) -> Iterator[Attached]:
    os.environ.setdefault("CACHE_DIT_LOG_LEVEL", "WARNING")  # cache-dit reads it when it is imported
    import cache_dit

    def config() -> cache_dit.DBCacheConfig:
        return cache_dit.DBCacheConfig(Bn_compute_blocks=0, max_warmup_steps=1, enable_separate_cfg=True, **setting)

    cache_dit.enable_cache(pipe.transformer, cache_config=config())
    yield Attached(lambda: None, lambda: cache_dit.refresh_context(pipe.transformer, cache_config=config()))


def _own(reuse: str, *, reads_proxy: bool) -> TimedMethod:
    name = f"galaxydit {reuse}"
    bare = f"{name}, no proxy"
    always = {"warmup": 0.0, "keep_last": 0, "max_consecutive": None}

    def setting(forced: ForcedSteps, proxy: str) -> Setting:
        if reads_proxy:
            return {"policy": Threshold(NO_CHANGE), "proxy": proxy, "reuse": reuse, **always}
        return {"policy": FixedSteps(forced.full), "reuse": reuse}

    method = Method(name if reads_proxy else bare, "this project", lambda steps: [], _galaxydit)
    return TimedMethod(method, setting, essential=reads_proxy, without_proxy=bare if reads_proxy else None)


METHODS = {
    "plain": TimedMethod(fewer_steps.METHOD, essential=True),
    "galaxydit output": _own("output", reads_proxy=True),
    "galaxydit residual": _own("residual", reads_proxy=True),
    "galaxydit output, no proxy": _own("output", reads_proxy=False),
    "galaxydit residual, no proxy": _own("residual", reads_proxy=False),
    "FirstBlockCache": TimedMethod(first_block_cache.METHOD, lambda forced, proxy: {"threshold": NO_CHANGE}),
    "SeaCache": TimedMethod(
        sea_cache.METHODS[0],
        lambda forced, proxy: {"threshold": SEA_NO_CHANGE, "max_consecutive_cached": 0, "cache_end_steps": 0},
    ),
    "cache-dit": TimedMethod(
        Method("cache-dit", db_cache.SOURCE, lambda steps: [], _cache_dit, needs=db_cache.NEEDS),
        lambda forced, proxy: {
            "Fn_compute_blocks": 1,
            "residual_diff_threshold": NO_CHANGE,
            "num_inference_steps": forced.steps,
        },
    ),
}
