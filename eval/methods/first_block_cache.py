"""FirstBlockCache (ParaAttention): reuse the later blocks while the first block's residual changes little."""

from contextlib import AbstractContextManager
from typing import Any

from diffusers import DiffusionPipeline, FirstBlockCacheConfig

from galaxydit.eval.methods.caches import enabled
from galaxydit.eval.methods.method import Setting, geometric_grid, method
from galaxydit.pipelines.trial import Attached


def config(setting: Setting) -> FirstBlockCacheConfig:
    return FirstBlockCacheConfig(threshold=setting["threshold"])


@method(
    "FirstBlockCache",
    "ParaAttention; diffusers",
    lambda steps: [{"threshold": threshold} for threshold in geometric_grid(0.008, 1.0, 17)],
)
def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> AbstractContextManager[Attached]:
    return enabled(pipe, config(setting))
