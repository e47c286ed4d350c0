"""Prediction of a tensor at a reused step from the full steps before it."""

from torch import Tensor

from galaxydit.compilation import beside_the_model

Anchor = tuple[float, Tensor]


def remember(history: tuple[Anchor, ...], anchor: Anchor, order: int) -> tuple[Anchor, ...]:
    """The newest `order + 1` full steps, oldest first; an anchor is (sigma, tensor)."""
    return (*history, anchor)[-(order + 1) :]


@beside_the_model
def predict(history: tuple[Anchor, ...], sigma: float, order: int) -> Tensor:
    """The tensor at `sigma`, in the shape and dtype of the anchors.

    Order 0 repeats the newest anchor (a new tensor: the caller may write to it). Order 1 goes on along the line through
    the newest two, y1 + (y1 - y0) (sigma - sigma1) / (sigma1 - sigma0), and falls back to order 0 while there is one
    anchor alone.
    """
    sigma_1, newest = history[-1]
    if order == 0 or len(history) < 2 or history[-2][0] == sigma_1:
        return newest.clone()
    sigma_0, older = history[-2]
    return newest.lerp(older, -(sigma - sigma_1) / (sigma_1 - sigma_0))
