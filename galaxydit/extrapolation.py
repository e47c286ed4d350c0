"""Prediction of a tensor at a reused step from the full steps before it."""

import torch
from torch import Tensor

from galaxydit.compilation import beside_the_model

Anchor = tuple[float, Tensor]
ORDERS = ((0.0, 0.0), (1.0, 0.0))
"""The weights that make a prediction of order 0 or 1."""


def remember(history: tuple[Anchor, ...], anchor: Anchor, count: int) -> tuple[Anchor, ...]:
    """The newest `count` full steps, oldest first; an anchor is (sigma, tensor)."""
    return (*history, anchor)[-count:]


@beside_the_model
def predict(history: tuple[Anchor, ...], sigma: float, weights: tuple[float, float]) -> Tensor:
    """The tensor at `sigma`, in the shape and dtype of the anchors: Newton's polynomial through the last full steps,

        y1 + line (sigma - sigma1) s1 + parabola (sigma - sigma1) (sigma - sigma0) (s1 - s0) / (sigma1 - sigma00),

    with the slopes s1 = (y1 - y0) / (sigma1 - sigma0) and s0 = (y0 - y00) / (sigma0 - sigma00) and `weights` (line,
    parabola). (0, 0) repeats the newest anchor, (1, 0) goes on along the line. Terms for which there are not enough
    anchors are left out. The result is a new tensor: the caller may write to it.
    """
    line, parabola = weights
    sigma_1, newest = history[-1]
    if len(history) < 2 or history[-2][0] == sigma_1 or line == parabola == 0:
        return newest.clone()
    sigma_0, older = history[-2]
    ahead, width = sigma - sigma_1, sigma_1 - sigma_0
    bend = 0.0
    if parabola and len(history) > 2 and history[-3][0] not in (sigma_0, sigma_1):
        bend = parabola * ahead * (sigma - sigma_0) / (sigma_1 - history[-3][0])
    predicted = newest.lerp(older, -(line * ahead + bend) / width)
    if bend:
        sigma_00, oldest = history[-3]
        predicted = torch.add(predicted, older - oldest, alpha=-bend / (sigma_0 - sigma_00))
    return predicted
