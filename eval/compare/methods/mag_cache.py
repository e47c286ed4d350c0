"""MagCache (arXiv 2506.09045): reuse while the predicted magnitude ratio of the residuals stays near 1.

The ratios of a model are measured beforehand in the calibration mode of diffusers' cache.
"""

import ast
import io
import re
from collections.abc import Sequence
from contextlib import redirect_stdout
from statistics import fmean
from typing import Any

from diffusers import DiffusionPipeline, MagCacheConfig

from galaxydit.eval.compare.diffusers_cache import cache_method, enabled
from galaxydit.eval.compare.method import Setting, geometric_grid
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.settings import GenerationSettings

CALIBRATED_PROMPTS = 4  # the ratios hardly depend on the prompt; the authors use one


def _settings(steps: int) -> list[Setting]:
    return [
        {"steps": steps, "threshold": threshold, "max_skip_steps": most, "retention_ratio": 0.2}
        for most in (2, 4, 6)
        for threshold in geometric_grid(0.01, 1.0, 9)
    ]


def _config(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> MagCacheConfig:
    return MagCacheConfig(
        threshold=setting["threshold"],
        max_skip_steps=setting["max_skip_steps"],
        retention_ratio=setting["retention_ratio"],
        num_inference_steps=setting["steps"],
        mag_ratios=calibration["ratios"],
    )


def _calibrate(
    pipe: DiffusionPipeline, prompts: Sequence[str], settings: GenerationSettings, seed: int
) -> dict[str, list[float]]:
    """The ratios that the cache prints in its calibration mode, averaged over branches and prompts."""
    if settings.steps is None:
        raise ValueError("steps=None is not allowed: expected an integer; set the number of steps for MagCache")
    rows: list[list[float]] = []
    for index, prompt in enumerate(prompts[:CALIBRATED_PROMPTS]):
        printed = io.StringIO()
        config = MagCacheConfig(calibrate=True, num_inference_steps=settings.steps)
        with enabled(pipe, config), redirect_stdout(printed):
            generate(pipe, prompt, settings, seed + index)
        rows += [ast.literal_eval(found) for found in re.findall(r"^\[[-\d., e]+\]$", printed.getvalue(), re.MULTILINE)]
    if not rows:
        raise ValueError("MagCache printed no ratios in its calibration mode; use the diffusers of constraints.txt")
    return {"ratios": [fmean(column) for column in zip(*rows, strict=True)]}


SOURCE = "MagCache, arXiv 2506.09045; diffusers"
METHOD = cache_method("MagCache", SOURCE, _settings, _config, _calibrate)
