"""MagCache (arXiv 2506.09045): reuse the residual while its magnitude is predicted to change little.

The prediction is one ratio per step: the residual's magnitude / that of the previous step. A setting holds arguments of
diffusers' `MagCacheConfig`, and if published, `ratios`: "measured" on the model, or those of "Wan2.1-T2V-1.3B".
"""

import ast
import io
import re
from collections.abc import Sequence
from contextlib import redirect_stdout
from statistics import fmean
from typing import Any

from diffusers import DiffusionPipeline, MagCacheConfig

from galaxydit.errors import refusal
from galaxydit.eval.methods.caches import enabled
from galaxydit.eval.methods.method import Context, Setting, geometric_grid, method
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.settings import GenerationSettings

CALIBRATED_PROMPTS = 4  # the ratios hardly depend on the prompt; the authors use one prompt
WAN = "Wan2.1-T2V-1.3B"
# fmt: off
RATIOS = (
    1.0, 1.0124, 1.00166, 0.99791, 0.99682, 0.99634, 0.99567, 0.99416, 0.99578, 0.9957, 0.99511, 0.99535, 0.99552,
    0.99541, 0.9954, 0.99489, 0.99518, 0.99484, 0.99481, 0.99415, 0.99419, 0.99396, 0.99388, 0.99349, 0.99309, 0.9927,
    0.99228, 0.99171, 0.99137, 0.99068, 0.99005, 0.98944, 0.98849, 0.98758, 0.98644, 0.98504, 0.9836, 0.98202,
    0.97977, 0.97717, 0.9741, 0.97003, 0.96538, 0.9593, 0.95086, 0.94013, 0.92402, 0.90241, 0.86821, 0.81838,
)
# fmt: on
"""The authors' for it: conditional branch, 50 steps, flow shift 8, guidance scale 6."""
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
    grid: list[Setting] = []
    for most in (2, 4, 6):
        for threshold in geometric_grid(0.01, 1.0, 9):
            grid.append({"steps": steps, "threshold": threshold, "max_skip_steps": most, "retention_ratio": 0.2})
    return grid


def _published(steps: int) -> list[Setting]:
    listed: list[Setting] = []
    for ratios in ("measured", WAN):
        for threshold, most, retention in PUBLISHED_SETTINGS:
            listed.append(
                {
                    "steps": steps,
                    "ratios": ratios,
                    "threshold": threshold,
                    "max_skip_steps": most,
                    "retention_ratio": retention,
                }
            )
    return listed


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


@method("MagCache", "MagCache, arXiv 2506.09045; diffusers", _settings, published=_published, calibrate=_calibrate)
def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> Context:
    # diffusers interpolates the published ratios of 50 steps to other numbers
    if setting.get("ratios") == WAN:
        ratios = list(RATIOS)
    else:
        ratios = calibration["ratios"]
    config = MagCacheConfig(
        num_inference_steps=setting["steps"],
        mag_ratios=ratios,
        threshold=setting["threshold"],
        max_skip_steps=setting["max_skip_steps"],
        retention_ratio=setting["retention_ratio"],
    )
    return enabled(pipe, config)
