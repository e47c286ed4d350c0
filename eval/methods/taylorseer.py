"""TaylorSeer (arXiv 2503.06923): extrapolate the outputs of modules from full steps at a fixed interval.

A setting holds fields of diffusers' `TaylorSeerCacheConfig`; with `lite`, only the last projection is extrapolated.

HiCache (arXiv 2508.16984) has scaled Hermite polynomials in place of the powers of the step offset k, the number of
steps since the last full step. With the physicists' polynomials H_n and sigma = 0.5, the power k^n becomes
sigma^n H_n(sigma k). At order 1 that is k / 2, so the extrapolation goes half as far as TaylorSeer's.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import product
from typing import Any

import torch
from diffusers import DiffusionPipeline, TaylorSeerCacheConfig
from diffusers.hooks.taylorseer_cache import TaylorSeerState
from numpy.polynomial import hermite
from torch import Tensor

from galaxydit.eval.methods.caches import enabled, hooks_in
from galaxydit.eval.methods.method import Context, Setting, method
from galaxydit.pipelines.trial import Attached
from galaxydit.runtime.recognition import family_of

# Of arXiv 2609.36433; every module is extrapolated.
PUBLISHED_SETTING: Setting = {"cache_interval": 3, "disable_cache_before_step": 3, "max_order": 1, "lite": False}
SCALE = 0.5  # HiCache's sigma


def _settings(steps: int) -> list[Setting]:
    """diffusers' options with its defaults (interval 5, 3 first steps, order 1) among them, lite and for every module.

    The lite mode at order 1 gets a fine grid, because one first step more or less changes its PSNR by decibels.
    """
    # Computed first steps are no advantage: they count in the compute fraction of every method alike.
    points = [(2, 0.6), (2, 0.3), (2, 0.1), (3, 0.3), (3, 0.1), (4, 0.2), (4, 0.06), (5, 0.06), (6, 0.06)]
    shares = (0.06, 0.1, 0.16, 0.18, 0.2, 0.22, 0.24, 0.26, 0.3, 0.4)
    fine = [(2, 0.6), *product((2, 3, 4, 5, 6), shares)]
    few = list(product((2, 3, 4, 6), (0.2, 0.06)))
    modes = [
        (True, 1, steps, fine),
        (True, 1, steps - math.ceil(steps * 0.1), few),
        (True, 0, steps, points),
        (True, 2, steps, points),
        (False, 1, steps, points),
    ]
    listed: list[Setting] = []
    for lite, order, end, tried in modes:
        for interval, share in tried:
            setting = {
                "cache_interval": interval,
                "disable_cache_before_step": math.ceil(steps * share),
                "disable_cache_after_step": end,
                "max_order": order,
                "lite": lite,
            }
            if setting not in listed:  # for few steps, several shares are the same number of them
                listed.append(setting)
    return listed


def taylorseer_config(pipe: DiffusionPipeline, setting: Setting) -> TaylorSeerCacheConfig:
    """The cache's configuration; the published mode extrapolates every attention and feed-forward.

    diffusers' default patterns match none of Wan's, so their names are passed.
    """
    family = family_of(pipe.transformer)
    parts = [part for name, part in family.parts.items() if name != "modulated_input"]
    stacks = "|".join(family.stacks)
    options = dict(setting)
    is_lite = options.pop("lite")
    identifiers = None
    if not is_lite:
        identifiers = [rf"({stacks})\.\d+\.({'|'.join(parts)})"]
    return TaylorSeerCacheConfig(
        **options,
        taylor_factors_dtype=pipe.transformer.dtype,
        use_lite_mode=is_lite,
        cache_identifiers=identifiers,
    )


def scaled_hermite(order: int, offset: float) -> float:
    """SCALE^order H_order(SCALE offset), in place of the power offset^order; `offset` is in steps."""
    return SCALE**order * float(hermite.hermval(SCALE * offset, [0] * order + [1]))


class HermiteState(TaylorSeerState):
    """The finite differences of one module's outputs, extrapolated in Hermite polynomials."""

    @torch.compiler.disable
    def predict(self) -> list[Tensor]:
        offset = self.current_step - self.last_update_step
        outputs = []
        for index, factors in self.taylor_factors.items():
            dtype = self.module_dtypes[index]
            # sum over n of H_n(offset) / n! times the n-th finite difference
            terms = []
            for n in sorted(factors):
                terms.append(scaled_hermite(n, offset) / math.factorial(n) * factors[n].to(dtype))
            outputs.append(torch.stack(terms).sum(dim=0))
        return outputs


@contextmanager
def on_published_steps(
    pipe: DiffusionPipeline, setting: Setting, state_class: type[TaylorSeerState] = TaylorSeerState
) -> Iterator[Attached]:
    """TaylorSeer's cache with the full steps of the published code: 0, 1, 2, 5, 8, ... for 3 and 3.

    diffusers' cache computes steps 0, 1, 2, 4, 7, ... there. `state_class` extrapolates each module.
    """

    def measure(hook: Any) -> tuple[bool, TaylorSeerState]:
        state = hook.state_manager.get_state()
        state.current_step += 1
        past_first = state.current_step - setting["disable_cache_before_step"] + 1
        return past_first <= 0 or past_first % setting["cache_interval"] == 0, state

    with enabled(pipe, taylorseer_config(pipe, setting)) as attached:
        for hook in hooks_in(pipe.transformer, "taylorseer_cache"):
            hook.state_manager._state_cls = state_class
            hook._measure_should_compute = partial(measure, hook)
        yield attached


@method("TaylorSeer", "TaylorSeer, arXiv 2503.06923; diffusers", _settings)
def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> Context:
    return enabled(pipe, taylorseer_config(pipe, setting))


@method(
    "TaylorSeer published", "TaylorSeer, arXiv 2503.06923; diffusers", lambda steps: [PUBLISHED_SETTING], tuned=False
)
def attach_published(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> Context:
    return on_published_steps(pipe, setting)


@method(
    "HiCache published",
    "HiCache, arXiv 2508.16984",
    lambda steps: [{**PUBLISHED_SETTING, "max_order": order} for order in (1, 2)],
    tuned=False,
)
def attach_hicache(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> Context:
    return on_published_steps(pipe, setting, HermiteState)
