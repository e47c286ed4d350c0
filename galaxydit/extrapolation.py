"""Extrapolation in sigma: the tensor of a reused step from those of the full steps before it."""

from typing import NamedTuple

from torch import Tensor

from galaxydit.torch_compile import beside_the_model

DAMPING = 0.85
"""Share of the last slope that is followed (damped trend, Gardner and McKenzie 1985, doi:10.1287/mnsc.31.10.1237).

The outputs are rounded and their path bends, so the whole slope overshoots over long intervals.
`python -m galaxydit.pipelines.wan_tiny.tools.predictions` compares other shares.
"""

CORRECTION = 0.25
"""Share of the last interval's error that is added to the predictions of the next one (the modifier of Hamming's
predictor-corrector method, J. ACM 6, 1959, doi:10.1145/320954.320958).

The path goes on bending, so errors of neighbouring intervals are alike. An interval's error is seen at its end and on
average is half of that. Half of this average is added, because more would overshoot where the path stops bending.
"""


class CachedStep(NamedTuple):
    """A full step: its number, noise level and tensor; `error` is what the slope before it missed at its end, where
    steps between it and the full step before were reused.
    """

    step: int
    sigma: float
    tensor: Tensor
    error: Tensor | None = None


@beside_the_model
def remember(history: tuple[CachedStep, ...], step: CachedStep, order: int) -> tuple[CachedStep, ...]:
    """The full steps that predictions of `order` need, oldest first: the newest one, at order 1 the one before, too."""
    if order == 0:
        return (step,)
    if history and step.step - history[-1].step > 1:
        step = step._replace(error=step.tensor - _along_slope(history, step.sigma))
    return (*(one._replace(error=None) for one in history[-1:]), step)


def slope_ahead(sigma: float, newest: float, older: float) -> float:
    """How many times the difference between two full steps, at the noise levels `newest` and `older`, is added to the
    newest one to predict the step at `sigma` at order 1; 0 where both levels are equal.
    """
    return 0.0 if newest == older else DAMPING * (sigma - newest) / (newest - older)


@beside_the_model
def predict(history: tuple[CachedStep, ...], sigma: float, order: int) -> Tensor:
    """The tensor at `sigma`, in the shape and dtype of the cached steps: at `order` 0 the newest one repeated, at 1 it
    follows the damped slope of the last two, where there are two, plus a share of the last interval's error.

    The result is a new tensor, which the caller may overwrite.
    """
    newest = history[-1]
    if order == 0:
        return newest.tensor.clone()
    predicted = _along_slope(history, sigma)
    return predicted if newest.error is None else predicted.add_(newest.error, alpha=CORRECTION)


def _along_slope(history: tuple[CachedStep, ...], sigma: float) -> Tensor:
    newest = history[-1]
    if len(history) < 2:
        return newest.tensor.clone()
    older = history[-2]
    return newest.tensor.lerp(older.tensor, -slope_ahead(sigma, newest.sigma, older.sigma))
