"""FirstBlockCache (ParaAttention): reuse the later blocks while the first block's residual changes little."""

from diffusers import FirstBlockCacheConfig

from galaxydit.eval.compare.method import geometric_grid
from galaxydit.eval.compare.third_party import cache_method

METHOD = cache_method(
    "FirstBlockCache",
    lambda steps: [{"threshold": threshold} for threshold in geometric_grid(0.008, 1.0, 17)],
    lambda pipe, setting, calibration: FirstBlockCacheConfig(threshold=setting["threshold"]),
)
