"""FirstBlockCache (ParaAttention): reuse the later blocks while the first block's residual changes little."""

from typing import Any

from diffusers import DiffusionPipeline, FirstBlockCacheConfig

from galaxydit.eval.methods.caches import enabled
from galaxydit.eval.methods.method import Context, Setting, geometric_grid, method


@method(
    "FirstBlockCache",
    "ParaAttention; diffusers",
    lambda steps: [{"threshold": threshold} for threshold in geometric_grid(0.008, 1.0, 17)],
)
def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> Context:
    return enabled(pipe, FirstBlockCacheConfig(**setting))
