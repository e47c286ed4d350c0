"""The methods that are timed: how each is attached to a transformer, and how its decisions are forced.

No threshold means anything on random weights, so decisions are forced through the input: a step that is to be reused
gets the latents and the timestep of the step before, and any method then measures no change; a full step gets other
ones, and any method then measures a large change. So each runs its own code, decision included, along the same plan.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

from diffusers import FirstBlockCacheConfig, SeaCacheConfig, WanTransformer3DModel

import galaxydit
from galaxydit import Config
from galaxydit.eval.latency_plan import Plan

NO_CHANGE = 1e-3  # between 0, of equal inputs, and the changes of tens of percent that other noise makes
SEA_NO_CHANGE = 0.5  # its filter moves a little with sigma; other noise changes it by more than 1


@dataclass(frozen=True)
class Attached:
    """A method at work: how to end its trajectory, and the bytes it has kept between calls (None: it does not say)."""

    reset: Callable[[], None]
    bytes_held: Callable[[], int | None]


@dataclass(frozen=True)
class Method:
    """One way to run a trajectory.

    attach: puts the method on a transformer, for a plan and a proxy.
    essential: whether it is measured before the others.
    without_proxy: for a method that reads a proxy, the one that does the same without; their difference is its cost.
    """

    attach: Callable[[WanTransformer3DModel, Plan, str], Attached]
    essential: bool = False
    without_proxy: str | None = None
    needs: str | None = None

    @property
    def is_available(self) -> bool:
        return self.needs is None or find_spec(self.needs) is not None


def _plain(transformer: WanTransformer3DModel, plan: Plan, proxy: str) -> Attached:
    return Attached(lambda: None, lambda: 0)


def _galaxydit(reuse: str, reads_proxy: bool) -> Callable[[WanTransformer3DModel, Plan, str], Attached]:
    def attach(transformer: WanTransformer3DModel, plan: Plan, proxy: str) -> Attached:
        if reads_proxy:
            config = Config(
                threshold=NO_CHANGE, proxy=proxy, warmup=0.0, keep_last=0, max_consecutive=None, reuse=reuse
            )
        else:
            config = Config(schedule=plan.full, reuse=reuse)
        acceleration = galaxydit.accelerate(transformer, config=config)
        return Attached(transformer._reset_stateful_cache, lambda: acceleration.report.bytes_held)

    return attach


def _first_block_cache(transformer: WanTransformer3DModel, plan: Plan, proxy: str) -> Attached:
    transformer.enable_cache(FirstBlockCacheConfig(threshold=NO_CHANGE))
    return Attached(transformer._reset_stateful_cache, lambda: None)


def _sea_cache(transformer: WanTransformer3DModel, plan: Plan, proxy: str) -> Attached:
    transformer.enable_cache(SeaCacheConfig(threshold=SEA_NO_CHANGE, max_consecutive_cached=0, cache_end_steps=0))
    return Attached(transformer._reset_stateful_cache, lambda: None)


def _cache_dit(transformer: WanTransformer3DModel, plan: Plan, proxy: str) -> Attached:
    os.environ.setdefault("CACHE_DIT_LOG_LEVEL", "WARNING")  # read when it is imported
    import cache_dit

    def config() -> cache_dit.DBCacheConfig:
        return cache_dit.DBCacheConfig(
            Fn_compute_blocks=1,
            Bn_compute_blocks=0,
            residual_diff_threshold=NO_CHANGE,
            max_warmup_steps=1,
            enable_separate_cfg=True,
            num_inference_steps=plan.steps,
        )

    cache_dit.enable_cache(transformer, cache_config=config())
    return Attached(lambda: cache_dit.refresh_context(transformer, cache_config=config()), lambda: None)


METHODS = {
    "plain": Method(_plain, essential=True),
    "galaxydit output": Method(_galaxydit("output", True), essential=True, without_proxy="galaxydit output, no proxy"),
    "galaxydit residual": Method(
        _galaxydit("residual", True), essential=True, without_proxy="galaxydit residual, no proxy"
    ),
    "galaxydit output, no proxy": Method(_galaxydit("output", False)),
    "galaxydit residual, no proxy": Method(_galaxydit("residual", False)),
    "FirstBlockCache": Method(_first_block_cache),
    "SeaCache": Method(_sea_cache),
    "cache-dit": Method(_cache_dit, needs="cache_dit"),
}
