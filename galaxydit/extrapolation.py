"""Extrapolation in sigma: the tensor of a reused step from those of the full steps before it."""

from torch import Tensor

from galaxydit.torch_compile import beside_the_model

CachedStep = tuple[float, Tensor]
"""The noise level of a full step, and its tensor."""

DAMPING = 0.85
"""Share of the last slope that is followed (damped trend, Gardner and McKenzie 1985, doi:10.1287/mnsc.31.10.1237).

The outputs are rounded and their path bends, so the whole slope overshoots over long intervals.
`python -m galaxydit.pipelines.wan_tiny.tools.predictions` compares other shares.
"""


def remember(history: tuple[CachedStep, ...], step: CachedStep, count: int) -> tuple[CachedStep, ...]:
    """The newest `count` full steps, oldest first."""
    return (*history, step)[-count:]


def slope_ahead(sigma: float, newest: float, older: float) -> float:
    """How many times the difference between two full steps, at the noise levels `newest` and `older`, is added to the
    newest one to predict the step at `sigma` at order 1; 0 where both levels are equal.
    """
    return 0.0 if newest == older else DAMPING * (sigma - newest) / (newest - older)


@beside_the_model
def predict(history: tuple[CachedStep, ...], sigma: float, order: int) -> Tensor:
    """The tensor at `sigma`, in the shape and dtype of the cached steps: at `order` 0 the newest one repeated, at 1 it
    follows the damped slope of the last two, where there are two.

    The result is a new tensor, which the caller may overwrite.
    """
    newest_sigma, newest = history[-1]
    if order == 0 or len(history) < 2:
        return newest.clone()
    older_sigma, older = history[-2]
    return newest.lerp(older, -slope_ahead(sigma, newest_sigma, older_sigma))
