"""Extrapolation in sigma: the tensor of a reused step from those of the full steps before it."""

import torch
from torch import Tensor

from galaxydit.torch_compile import beside_the_model

CachedStep = tuple[float, Tensor]
"""The noise level of a full step, and its tensor."""
ORDERS = ((0.0, 0.0), (1.0, 0.0))
"""First- and second-order coefficients of an extrapolation of order 0 and of order 1."""


def remember(history: tuple[CachedStep, ...], step: CachedStep, count: int) -> tuple[CachedStep, ...]:
    """The newest `count` full steps, oldest first."""
    return (*history, step)[-count:]


@beside_the_model
def predict(history: tuple[CachedStep, ...], sigma: float, coefficients: tuple[float, float]) -> Tensor:
    """The tensor at `sigma`, in the shape and dtype of the cached steps, by a damped Newton polynomial:

        y1 + a (sigma - sigma1) s1 + b (sigma - sigma1) (sigma - sigma0) (s1 - s0) / (sigma1 - sigma00),

    with the slopes s1 = (y1 - y0) / (sigma1 - sigma0) and s0 = (y0 - y00) / (sigma0 - sigma00), and `coefficients`
    (a, b) of the first and the second order. (0, 0) repeats the newest step, (1, 0) extrapolates linearly. Terms for
    which there are too few cached steps are left out. The result is a new tensor, which the caller may overwrite.
    """
    first, second = coefficients
    sigma_1, newest = history[-1]
    if len(history) < 2 or history[-2][0] == sigma_1 or first == second == 0:
        return newest.clone()
    sigma_0, older = history[-2]
    ahead, width = sigma - sigma_1, sigma_1 - sigma_0
    curvature = 0.0
    if second and len(history) > 2 and history[-3][0] not in (sigma_0, sigma_1):
        curvature = second * ahead * (sigma - sigma_0) / (sigma_1 - history[-3][0])
    predicted = newest.lerp(older, -(first * ahead + curvature) / width)
    if curvature:
        sigma_00, oldest = history[-3]
        predicted = torch.add(predicted, older - oldest, alpha=-curvature / (sigma_0 - sigma_00))
    return predicted
