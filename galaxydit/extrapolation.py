"""Extrapolation in sigma: the tensor of a reused step from those of the full steps before it."""

from torch import Tensor

from galaxydit.torch_compile import beside_the_model

CachedStep = tuple[float, Tensor]
"""The noise level of a full step, and its tensor."""


def remember(history: tuple[CachedStep, ...], step: CachedStep, count: int) -> tuple[CachedStep, ...]:
    """The newest `count` full steps, oldest first."""
    return (*history, step)[-count:]


@beside_the_model
def predict(history: tuple[CachedStep, ...], sigma: float, order: int) -> Tensor:
    """The tensor at `sigma`, in the shape and dtype of the cached steps: at `order` 0 the newest one repeated, at 1 the
    straight line through the last two, where there are two.

    The result is a new tensor, which the caller may overwrite.
    """
    newest_sigma, newest = history[-1]
    if order == 0 or len(history) < 2 or history[-2][0] == newest_sigma:
        return newest.clone()
    older_sigma, older = history[-2]
    return newest.lerp(older, (newest_sigma - sigma) / (newest_sigma - older_sigma))
