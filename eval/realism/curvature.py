"""Curvature of a recorded generation, and gain of an error from one step to the final latent.

The velocity is the guided prediction of a step: the derivative of the latents by sigma, the noise level.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from galaxydit.eval.compare.trajectory import Trajectory

WINDOW = 5  # steps of the local fit
Array = NDArray[np.float64]


def change_per_step(trajectory: Trajectory) -> Array:
    """Change of the velocity over each step, relative to the length of the chord, `(steps,)`, mean over the batch.

    The chord is the straight line from the initial noise to the final latent. The change is the norm of the projected
    path's second derivative by sigma, times the length of the step in sigma.

    The path of the latents is projected to a plane, as in arXiv 2609.39343: the first coordinate is the distance d from
    the chord, the second has the derivative sqrt(speed^2 - d'^2), where speed is the norm of the velocity. The second
    derivative of the unprojected path is larger, because its values bend in different directions (2.7 times for FLUX.1,
    with a correlation of 0.97).
    """
    latents = torch.stack(trajectory.latents).flatten(2)
    velocity = torch.stack([trajectory.guided(step) for step in range(trajectory.steps)]).flatten(2)
    chord = trajectory.final.flatten(1) - latents[0]
    length = chord.norm(dim=-1)
    path = latents - latents[0]
    direction = chord / length[:, None]
    along = (path * direction).sum(-1, keepdim=True)
    distance = ((path - along * direction).norm(dim=-1) / length).double().numpy()
    speed = (velocity.norm(dim=-1) / length).double().numpy()
    away, bend = _derivatives(trajectory.sigmas, distance)
    forward = np.sqrt(np.maximum(speed**2 - away**2, 0))
    curvature = np.hypot(bend, _derivatives(trajectory.sigmas, forward)[0]).mean(axis=1)
    return curvature * -np.diff(trajectory.sigmas, append=0.0)


def error_gain(full: Trajectory, reused: Trajectory, step: int) -> float:
    """Deviation of the final latent, divided by the error of the guided prediction at `step`.

    `full` computes every step. `reused` is the same generation, but reuses an earlier output in `step` alone. The gain
    is the mean over the batch of ratios of absolute L2 norms (arXiv 2609.36433, equation 10). It is not divided by the
    length of the step in sigma.
    """
    local = (reused.guided(step) - full.guided(step)).flatten(1).norm(dim=-1)
    final = (reused.final - full.final).flatten(1).norm(dim=-1)
    return float((final / local).mean())


def _derivatives(sigmas: Array, values: Array) -> tuple[Array, Array]:
    """First and second derivatives by sigma of a parabola fitted to `values` around each step.

    `values` and both results have the shape `(steps, batch)`; `change_per_step` passes coordinates of the projected
    path and their derivatives.
    """
    first, second = np.empty_like(values), np.empty_like(values)
    for step, sigma in enumerate(sigmas):
        begin = min(max(0, step - WINDOW // 2), max(0, len(sigmas) - WINDOW))
        window = slice(begin, begin + WINDOW)
        coefficients = np.polynomial.polynomial.polyfit(sigmas[window] - sigma, values[window], 2)
        first[step], second[step] = coefficients[1], 2 * coefficients[2]
    return first, second
