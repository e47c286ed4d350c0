"""MagCache (arXiv 2506.09045): reuse the residual while its magnitude is predicted to change little.

The prediction is one ratio per step: the residual's magnitude / that of the previous step. A setting holds arguments of
diffusers' `MagCacheConfig`, and if published, `ratios`: "measured" on the model, or those of "Wan2.1-T2V-1.3B".
"""

import ast
import io
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager, redirect_stdout
from statistics import fmean
from typing import Any

from diffusers import DiffusionPipeline, MagCacheConfig

from galaxydit.errors import refusal
from galaxydit.eval.methods.caches import enabled
from galaxydit.eval.methods.method import Setting, geometric_grid, method
from galaxydit.eval.methods.published_wan import RATIOS
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.trial import Attached

CALIBRATED_PROMPTS = 4  # the ratios hardly depend on the prompt; the authors use one prompt
WAN = "Wan2.1-T2V-1.3B"
# (threshold, max_skip_steps, retention_ratio)
PUBLISHED_SETTINGS = (
    (0.12, 2, 0.2),  # the authors' slow setting for Wan2.1-1.3B
    (0.12, 4, 0.2),  # their fast setting
    (0.24, 6, 0.2),  # theirs for 14B
    (0.1, 4, 0.1),  # arXiv 2609.36433
    (0.15, 6, 0.2),  # arXiv 2610.10457, at three speedups
    (0.9246, 8, 0.2),
    (8.0, 40, 0.2),
)


def _settings(steps: int) -> list[Setting]:
    return [
        {"steps": steps, "threshold": threshold, "max_skip_steps": most, "retention_ratio": 0.2}
        for most in (2, 4, 6)
        for threshold in geometric_grid(0.01, 1.0, 9)
    ]


def _published_settings(steps: int) -> list[Setting]:
    return [
        {"steps": steps, "ratios": ratios, "threshold": threshold, "max_skip_steps": most, "retention_ratio": retention}
        for ratios in ("measured", WAN)
        for threshold, most, retention in PUBLISHED_SETTINGS
    ]


def _config(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> MagCacheConfig:
    """The cache's configuration; diffusers interpolates the published ratios of 50 steps to other numbers."""
    published = setting.get("ratios") == WAN
    return MagCacheConfig(
        threshold=setting["threshold"],
        max_skip_steps=setting["max_skip_steps"],
        retention_ratio=setting["retention_ratio"],
        num_inference_steps=setting["steps"],
        mag_ratios=list(RATIOS) if published else calibration["ratios"],
    )


def _calibrate(
    pipe: DiffusionPipeline, prompts: Sequence[str], settings: GenerationSettings, seed: int
) -> dict[str, list[float]]:
    """`ratios` of the steps that the cache prints in its calibration mode, means over branches and prompts."""
    if settings.steps is None:
        raise refusal("steps", None, "a whole number", "pass the number of steps, which MagCache needs")
    rows: list[list[float]] = []
    for index, prompt in enumerate(prompts[:CALIBRATED_PROMPTS]):
        printed = io.StringIO()
        config = MagCacheConfig(calibrate=True, num_inference_steps=settings.steps)
        with enabled(pipe, config), redirect_stdout(printed):
            generate(pipe, prompt, settings, seed + index)
        lists = re.findall(r"^\[[-\d., e]+\]$", printed.getvalue(), re.MULTILINE)
        rows += [ast.literal_eval(text) for text in lists]
    if not rows:
        raise ValueError("MagCache printed no ratios in its calibration mode; use the diffusers of constraints.txt")
    return {"ratios": [fmean(column) for column in zip(*rows, strict=True)]}


@method(
    "MagCache",
    "MagCache, arXiv 2506.09045; diffusers",
    _settings,
    published=_published_settings,
    calibrate=_calibrate,
)
def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> AbstractContextManager[Attached]:
    return enabled(pipe, _config(pipe, setting, calibration))
