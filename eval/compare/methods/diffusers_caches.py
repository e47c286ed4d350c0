"""The caches that come with diffusers and skip whole block stacks, each as its documentation asks for it.

They keep their state by the name of the cache context, so that Wan's two branches, called one after the other, have
one each; a pipeline resets it when a generation ends.
"""

import ast
import io
import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from statistics import fmean
from typing import Any

from diffusers import DiffusionPipeline, FirstBlockCacheConfig, MagCacheConfig, SeaCacheConfig, TaylorSeerCacheConfig

from galaxydit.eval.arena.attach import leaving_no_trace, spread, tensors_in_hooks
from galaxydit.eval.arena.method import Attached, Method, Setting
from galaxydit.families import family_of
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.settings import GenerationSettings

CALIBRATED_PROMPTS = 4  # ratios hardly differ between prompts, as MagCache's authors found: they take one


@contextmanager
def enabled(pipe: DiffusionPipeline, config: Any) -> Iterator[Attached]:
    """The pipeline's transformer with a diffusers cache."""
    transformer = pipe.transformer
    with leaving_no_trace(pipe):
        transformer.enable_cache(config)
        try:
            yield Attached(tensors_in_hooks(transformer))
        finally:
            transformer.disable_cache()


def _method(
    name: str,
    source: str,
    settings: Callable[[int], Sequence[Setting]],
    config: Callable[[DiffusionPipeline, Setting, Any], Any],
    calibrate: Callable[[DiffusionPipeline, Sequence[str], GenerationSettings, int], Any] | None = None,
) -> Method:
    @contextmanager
    def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> Iterator[Attached]:
        with enabled(pipe, config(pipe, setting, calibration)) as attached:
            yield attached

    return Method(name, source, settings, attach, calibrate)


def _first_block_cache(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> FirstBlockCacheConfig:
    return FirstBlockCacheConfig(threshold=setting["threshold"])


def _mag_cache_settings(steps: int) -> list[Setting]:
    return [
        {"steps": steps, "threshold": threshold, "max_skip_steps": most, "retention_ratio": 0.2}
        for most in (2, 4, 6)
        for threshold in spread(0.01, 1.0, 9)
    ]


def _mag_cache(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> MagCacheConfig:
    return MagCacheConfig(
        threshold=setting["threshold"],
        max_skip_steps=setting["max_skip_steps"],
        retention_ratio=setting["retention_ratio"],
        num_inference_steps=setting["steps"],
        mag_ratios=calibration["ratios"],
    )


def _calibrate_mag_cache(
    pipe: DiffusionPipeline, prompts: Sequence[str], settings: GenerationSettings, seed: int
) -> dict[str, list[float]]:
    """The ratios that its calibration mode prints, mean over branches and a few prompts."""
    if settings.steps is None:
        raise ValueError("steps is None, allowed are integers: MagCache counts them")
    rows: list[list[float]] = []
    for index, prompt in enumerate(prompts[:CALIBRATED_PROMPTS]):
        printed = io.StringIO()
        config = MagCacheConfig(calibrate=True, num_inference_steps=settings.steps)
        with enabled(pipe, config), redirect_stdout(printed):
            generate(pipe, prompt, settings, seed + index)
        rows += [ast.literal_eval(found) for found in re.findall(r"^\[[-\d., e]+\]$", printed.getvalue(), re.MULTILINE)]
    if not rows:
        raise ValueError("MagCache printed no ratios in its calibration mode: its messages have changed")
    return {"ratios": [fmean(column) for column in zip(*rows, strict=True)]}


def _taylorseer_settings(steps: int) -> list[Setting]:
    """Lite with order 1 serves best here and is tried closely: a step more or less in front changes its PSNR by dB."""
    points = [(2, 0.6), (2, 0.3), (2, 0.1), (3, 0.3), (3, 0.1), (4, 0.2), (4, 0.06), (5, 0.1), (6, 0.06)]
    shares = (0.1, 0.16, 0.18, 0.2, 0.22, 0.24, 0.26, 0.28, 0.3, 0.34, 0.4)
    closely = [*points, *((interval, share) for interval in (2, 3, 4, 5, 6) for share in shares)]
    kinds = [({"lite": True}, 1, closely), ({"lite": True}, 0, points), ({"lite": False}, 1, points)]
    found = [
        {"cache_interval": interval, "disable_cache_before_step": math.ceil(steps * share), "max_order": order} | kind
        for kind, order, tried in kinds
        for interval, share in tried
    ]
    return [setting for index, setting in enumerate(found) if setting not in found[:index]]


def _taylorseer(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> TaylorSeerCacheConfig:
    """Lite predicts the last projection alone; otherwise every attention and feed-forward is predicted, as published.

    The default patterns of diffusers match none of Wan's modules, so the modules are named here.
    """
    family = family_of(pipe.transformer)
    parts = [part for name, part in family.parts.items() if name != "modulated_input"]
    stacks = "|".join(family.stacks)
    return TaylorSeerCacheConfig(
        cache_interval=setting["cache_interval"],
        disable_cache_before_step=setting["disable_cache_before_step"],
        max_order=setting["max_order"],
        taylor_factors_dtype=pipe.transformer.dtype,
        use_lite_mode=setting["lite"],
        cache_identifiers=None if setting["lite"] else [rf"({stacks})\.\d+\.({'|'.join(parts)})"],
    )


def _sea_cache(order: int) -> Method:
    def config(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> SeaCacheConfig:
        return SeaCacheConfig(
            threshold=setting["threshold"],
            residual_order=order,
            max_consecutive_cached=setting["max_consecutive_cached"],
        )

    return _method(
        f"SeaCache order {order}",
        "SeaCache, arXiv 2602.18993; diffusers",
        lambda steps: [
            {"threshold": threshold, "max_consecutive_cached": most}
            for most in (0, 3)
            for threshold in spread(0.02, 2.0, 11)
        ],
        config,
    )


METHODS = (
    _method(
        "FirstBlockCache",
        "ParaAttention; diffusers",
        lambda steps: [{"threshold": threshold} for threshold in spread(0.008, 1.0, 17)],
        _first_block_cache,
    ),
    _method(
        "MagCache",
        "MagCache, arXiv 2506.09045; diffusers",
        _mag_cache_settings,
        _mag_cache,
        _calibrate_mag_cache,
    ),
    _method("TaylorSeer", "TaylorSeer, arXiv 2503.06923; diffusers", _taylorseer_settings, _taylorseer),
    _sea_cache(0),
    _sea_cache(1),
)
