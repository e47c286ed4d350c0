"""SeaCache (arXiv 2602.18993): reuse while the spectrally filtered latent changes little."""

from diffusers import SeaCacheConfig

from galaxydit.eval.compare.diffusers_cache import cache_method
from galaxydit.eval.compare.method import Method, Setting, geometric_grid

SOURCE = "SeaCache, arXiv 2602.18993; diffusers"


def _settings(steps: int) -> list[Setting]:
    return [
        {"threshold": threshold, "max_consecutive_cached": most}
        for most in (0, 3)
        for threshold in geometric_grid(0.02, 2.0, 11)
    ]


def _method(order: int) -> Method:
    return cache_method(
        f"SeaCache order {order}",
        SOURCE,
        _settings,
        lambda pipe, setting, calibration: SeaCacheConfig(residual_order=order, **setting),
    )


METHODS = (_method(0), _method(1))
