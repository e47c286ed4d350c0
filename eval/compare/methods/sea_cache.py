"""SeaCache (arXiv 2602.18993): reuse the block stack's residual while the spectrally filtered latent changes little.

At order 0 a reused step repeats the last residual, at order 1 it extrapolates the last two residuals.
"""

from dataclasses import replace

from diffusers import SeaCacheConfig

from galaxydit.eval.compare.method import Method, Setting, geometric_grid
from galaxydit.eval.compare.third_party import cache_method


def _settings(steps: int) -> list[Setting]:
    return [
        {"threshold": threshold, "max_consecutive_cached": most}
        for most in (0, 3)
        for threshold in geometric_grid(0.02, 2.0, 21)
    ]


def _method(order: int) -> Method:
    return cache_method(
        f"SeaCache order {order}",
        _settings,
        lambda pipe, setting, calibration: SeaCacheConfig(residual_order=order, **setting),
    )


ORDERS = (_method(0), _method(1))
# The authors' thresholds for Wan2.1-1.3B (0.2, 0.35), and those of arXiv 2610.10457 (0.28, 0.47, 0.7), without a limit
# on consecutive reuse; diffusers' default exponent is the authors' 3.
PUBLISHED = ORDERS[0].published(
    lambda steps: [{"threshold": value, "max_consecutive_cached": 0} for value in (0.2, 0.28, 0.35, 0.47, 0.7)]
)
METHODS = (*ORDERS, replace(PUBLISHED, name="SeaCache published"))
