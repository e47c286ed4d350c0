"""The timed methods, at settings with which the input of a step forces it to be full or reused.

Thresholds mean nothing on random weights: a reused step gets the latent and timestep of the step before, a full step
other noise, which every method's own decision tells apart. "no proxy" measures nothing; its full steps are fixed.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from diffusers import FlowMatchEulerDiscreteScheduler
from torch import Tensor

from galaxydit import FixedSteps, GalaxyDiTConfig, Threshold
from galaxydit.acceleration import Acceleration
from galaxydit.eval.latency.model_shapes import ForcedSteps
from galaxydit.eval.methods import first_block_cache, sea_cache
from galaxydit.pipelines.trial import Attached

NO_CHANGE = 1e-3  # between 0, for equal inputs, and the change of tens of percent that other noise causes
SEA_NO_CHANGE = 0.5  # SeaCache's filter depends slightly on sigma; other noise changes its output by more than 1

Attach = Callable[[Any, ForcedSteps], AbstractContextManager[Attached]]
"""From pipeline and forced steps to the context manager of the method. The pipeline is an object that has nothing but
the attributes `transformer` and `scheduler`."""


class ForcedScheduler(FlowMatchEulerDiscreteScheduler):
    """Computes Euler's step, but hands on `next_latent`, because the timed inputs are given."""

    next_latent: Tensor

    def step(self, model_output: Tensor, timestep: Any, sample: Tensor, return_dict: bool = False) -> tuple[Tensor]:
        torch.add(sample, model_output, alpha=-1e-4)
        self._step_index: int | None = 1 + (self.step_index or 0)
        return (self.next_latent,)


def _galaxydit(reuse: Any, *, proxy: bool) -> Attach:
    @contextmanager
    def attach(pipe: Any, forced: ForcedSteps) -> Iterator[Attached]:
        if proxy:
            config = GalaxyDiTConfig(Threshold(NO_CHANGE), reuse=reuse, warmup=0.0, keep_last=0, max_consecutive=None)
        else:
            config = GalaxyDiTConfig(FixedSteps(forced.full), reuse=reuse)
        with Acceleration(pipe.transformer, config, pipe.scheduler) as acceleration:
            yield Attached(lambda: acceleration.report.bytes_held)

    return attach


def _sea_cache(pipe: Any, forced: ForcedSteps) -> AbstractContextManager[Attached]:
    setting = {"threshold": SEA_NO_CHANGE, "max_consecutive_cached": 0, "cache_end_steps": 0}
    return sea_cache.attach(pipe, setting, None)


@contextmanager
def _cache_dit(pipe: Any, forced: ForcedSteps) -> Iterator[Attached]:
    os.environ.setdefault("CACHE_DIT_LOG_LEVEL", "WARNING")  # cache-dit reads it when it is imported
    import cache_dit

    def config() -> cache_dit.DBCacheConfig:
        return cache_dit.DBCacheConfig(
            Fn_compute_blocks=1,
            Bn_compute_blocks=0,
            residual_diff_threshold=NO_CHANGE,
            max_warmup_steps=1,
            enable_separate_cfg=True,
            num_inference_steps=forced.steps,
        )

    cache_dit.enable_cache(pipe.transformer, cache_config=config())
    yield Attached(lambda: None, lambda: cache_dit.refresh_context(pipe.transformer, cache_config=config()))


METHODS: dict[str, Attach] = {
    "plain": lambda pipe, forced: nullcontext(Attached(lambda: 0)),
    "galaxydit output": _galaxydit("output", proxy=True),
    "galaxydit residual": _galaxydit("residual", proxy=True),
    "galaxydit output, no proxy": _galaxydit("output", proxy=False),
    "galaxydit residual, no proxy": _galaxydit("residual", proxy=False),
    "FirstBlockCache": lambda pipe, forced: first_block_cache.attach(pipe, {"threshold": NO_CHANGE}, None),
    "SeaCache": _sea_cache,
    "cache-dit": _cache_dit,
}
