"""Curvature of the guided trajectory, and what an error of one step has become at the end."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from galaxydit.eval.realism.trajectory import Trajectory

Array = NDArray[np.float64]
WINDOW = 5  # steps of the local fit


def curvature(trajectory: Trajectory) -> Array:
    """rho2 `(steps,)`: norm of the second derivative of the latent by sigma / length of the chord, mean over the batch.

    The velocity is the first derivative, so the second is the slope of a straight line fitted to the velocities of five
    steps around each step. The chord leads from the noise to the result. The normal component alone counts, because a
    change of speed along the path does not bend it. Construction of the profiles of arXiv 2609.39343.
    """
    chord = (trajectory.latents[-1] - trajectory.latents[0]).norm(dim=-1)
    steps = len(trajectory.sigmas)
    result = np.empty(steps)
    for step in range(steps):
        first = min(max(0, step - WINDOW // 2), max(0, steps - WINDOW))
        window = slice(first, first + WINDOW)
        slope = _slope(trajectory.sigmas[window], trajectory.velocity[window])
        direction = trajectory.velocity[step]
        along = (slope * direction).sum(-1, keepdim=True) / direction.square().sum(-1, keepdim=True)
        normal = slope - along * direction
        result[step] = float((normal.norm(dim=-1) / chord).mean())
    return result


def change_per_step(trajectory: Trajectory) -> Array:
    """rho2 times the length of each step in sigma: relative change of the velocity from one step to the next."""
    return curvature(trajectory) * -np.diff(trajectory.sigmas, append=0.0)


def error_gain(full: Trajectory, reused: Trajectory, step: int) -> float:
    """Deviation of the final latent / error of the guided prediction at the one step that was reused; mean over the
    batch (arXiv 2609.36433, equation 10). Both are L2 norms; the step's length in sigma is part of the gain.
    """
    local = (reused.velocity[step] - full.velocity[step]).norm(dim=-1)
    final = (reused.latents[-1] - full.latents[-1]).norm(dim=-1)
    return float((final / local).mean())


def _slope(sigmas: Array, velocity: Tensor) -> Tensor:
    """Least-squares slope `(batch, values)` of velocities `(window, batch, values)` over their sigmas."""
    centred = torch.as_tensor(sigmas - sigmas.mean(), dtype=velocity.dtype)
    return torch.einsum("w,wbv->bv", centred, velocity) / centred.square().sum()
