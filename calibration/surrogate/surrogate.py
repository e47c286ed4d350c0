"""The PSNR of reuse that a surrogate (`Surrogate`) predicts for a list of full steps, the steps that are computed.

A direction is one scalar coordinate of the latent; its clean values are the values that the clean latent can have
there. A node is one initial noise value from which a direction is generated.
"""

from collections.abc import Container, Sequence
from dataclasses import dataclass
from math import log10

import numpy as np
import torch
from scipy.optimize import nnls
from scipy.stats import norm
from torch import Tensor

from galaxydit.calibration.recording import Array
from galaxydit.calibration.surrogate.directions import VARIANCES, Directions, Distribution
from galaxydit.calibration.surrogate.solver import LinearSolver, unipc
from galaxydit.extrapolation import DAMPING, LARGEST_AHEAD, CachedStep, correction, missed, predict, remember

WIDEST = 4.0
"""Largest variance / the variance of a direction whose signal equals the noise at the first measured step. Directions
of larger variance are decided for one value before that step, so the curvature does not determine their energies."""
QUANTILES = 800  # of the initial noise; by symmetry only those above 0 are computed
COARSE, NEAR = 40, 24
"""Nodes of the initial noise: upper quantiles, and nodes on each side of each boundary between clean values."""
NEAREST, FARTHEST = 1e-4, 0.3  # distances of the nodes beside a boundary from it
BISECTIONS, FAR = 40, 6.0  # to find a boundary among initial noise of up to `FAR` standard deviations


@dataclass(frozen=True)
class Curvature:
    """Measured curvature rho2 of a guided trajectory.

    The trajectory is the path of the latents over sigma, the noise level. rho2 is the norm of the latents' second
    derivative by sigma, divided by the length of the chord, the straight line from the noise to the final latent.

    Attributes:
        flow_shift: of the trajectory, which has 50 steps.
        steps: indices of the steps at which it was measured.
        rho2: the curvature at each of these steps.
    """

    flow_shift: float
    steps: tuple[int, ...]
    rho2: tuple[float, ...]


@dataclass(frozen=True)
class Rule:
    """Constants of the prediction of reused steps and of the correction of full steps.

    Attributes:
        order: 0 repeats the last full step, 1 extrapolates the last two.
        slope: share of the slope between the last two full steps that order 1 follows, in [0, 1].
        largest_ahead: largest factor with which order 1 adds the difference between the last two full steps.
        correction: share of the estimated error of the reused steps that the next full step corrects, in [0, 1].
        by_step: extrapolate in the index of the step, not in sigma, as TaylorSeer does.
    """

    order: int = 0
    slope: float = DAMPING
    largest_ahead: float = LARGEST_AHEAD
    correction: float = 0.0
    by_step: bool = False

    def predict(self, history: tuple[CachedStep, ...], level: float) -> Tensor:
        """The prediction at `level` from `history`, the full steps so far, oldest first.

        `level` is a noise level, or with `by_step` the index of the step times -1; so are the levels in `history`.
        """
        return predict(history, level, self.order, self.slope, self.largest_ahead)


@dataclass(frozen=True)
class _Nodes:
    """Values of the initial noise (nodes) from which directions are generated, `(directions, nodes)` each.

    Attributes:
        noise: the initial noise.
        probabilities: probability of each node together with its mirror image below 0; they sum to 1 in each direction.
        final: the final latent if all steps are full.
    """

    noise: Tensor
    probabilities: Array
    final: Tensor


class Surrogate:
    """Independent directions whose energies are fitted so that together they have a measured curvature.

    UniPC generates each direction from noise. Full steps evaluate its exact denoiser, and the plugin's own functions
    predict the other steps and correct full steps (`generate`). Directions differ in the variance of their clean
    values and in their energy, the weight in mean squares over the latent.

    A direction settles on one of its clean values near the noise level at which its signal equals the noise. The error
    of reuse moves some of the initial noise across the boundary between two values. The share of noise that crosses
    grows with the error itself, not with its square; a quadratic model of the error lacks this.

    Energies are fitted by non-negative least squares, so that at each measured step the sum over the directions of
    energy times the mean square of the second derivative of the latent by sigma equals the square of the measured
    curvature rho2 (`Curvature`), with relative errors. The expected PSNR is known up to a constant, which step lists of
    known PSNR determine (`step_lists.offset`).

    Args:
        distribution: of the clean values of every direction, up to their scale.
        curvature: measured curvature rho2 of a model's guided trajectory, the path of its latents over sigma: norm of
            the second derivative by sigma / length of the chord, without a unit; with its flow shift and its steps.

    Attributes:
        fitted: curvature of the surrogate / measured curvature, at each measured step.
        directions: the directions whose energy is above 0, given by `distribution` and their variances.
        energies: the energies of `directions`, `(directions,)`.
    """

    def __init__(self, distribution: Distribution, curvature: Curvature) -> None:
        solver = unipc(curvature.flow_shift, 50)
        first = solver.sigmas[curvature.steps[0]]
        variances = VARIANCES[WIDEST * (first / (1 - first)) ** 2 >= VARIANCES]
        directions = Directions(distribution, variances)
        upper = norm.ppf((np.arange(QUANTILES // 2, QUANTILES) + 0.5) / QUANTILES)
        noise = torch.tensor(np.tile(upper, (len(variances), 1)))
        _, predictions = generate(directions, solver, noise)
        bends = (np.gradient(predictions.numpy(), solver.sigmas, axis=0) ** 2).mean(-1)
        relative = bends[list(curvature.steps)] / np.array(curvature.rho2)[:, None] ** 2
        scale = np.linalg.norm(relative, axis=0)
        scale[scale < 1e-12 * scale.max()] = np.inf  # such directions are straight at all steps
        energies = nnls(relative / scale, np.ones(len(relative)), maxiter=10_000)[0] / scale
        self.fitted = np.sqrt(relative @ energies)  # curvature of the surrogate / measured one
        self.directions = Directions(distribution, variances[energies > 0])
        self.energies = energies[energies > 0]
        self._nodes: dict[tuple[float, int], _Nodes] = {}

    def level(
        self, full: Container[int], rule: Rule, flow_shift: float, steps: int = 50, own_steps: int | None = None
    ) -> float:
        """Expected PSNR in dB, up to a constant, of the final latent of a generation against that of a reference.

        The reference has `steps` steps and computes all of them. The generation computes the steps in `full`, and
        `rule` predicts the others. `own_steps` is the number of the generation's steps, full and reused, by default
        `steps`; it differs for plain sampling with fewer steps, whose steps are all in `full`. `flow_shift` is that of
        both.
        """
        nodes = self._nodes_at(flow_shift, steps)
        final, _ = generate(self.directions, unipc(flow_shift, own_steps or steps), nodes.noise, full, rule)
        errors = ((final - nodes.final).numpy() ** 2 * nodes.probabilities).sum(-1)
        return -10 * log10(max(float(errors @ self.energies), 1e-300))

    def _nodes_at(self, flow_shift: float, steps: int) -> _Nodes:
        """Initial noise values above 0 (nodes) for each direction, with their probabilities and final latents.

        Nodes are dense around the noise where the final latent jumps from one clean value to the next. The final latent
        is that of `steps` full steps at `flow_shift`.
        """
        if (flow_shift, steps) not in self._nodes:
            solver, boundaries = unipc(flow_shift, steps), self.directions.boundaries
            low, high = torch.zeros_like(boundaries), torch.full_like(boundaries, FAR)
            for _ in range(BISECTIONS):
                middle = (low + high) / 2
                below = generate(self.directions, solver, middle)[0] < boundaries
                low, high = torch.where(below, middle, low), torch.where(below, high, middle)
            coarse = norm.ppf(0.5 + (np.arange(COARSE) + 0.5) / (2 * COARSE))
            distances = np.geomspace(NEAREST, FARTHEST, NEAR)
            around = (low[..., None].numpy() + np.concatenate([distances, -distances])).reshape(len(low), -1)
            both = [coarse, distances]  # those around 0, where a distribution without the value 0 has a boundary
            noise = np.sort(np.abs(np.hstack([np.tile(np.hstack(both), (len(low), 1)), around])), axis=1)
            below = norm.cdf(noise)
            edges = np.pad((below[:, 1:] + below[:, :-1]) / 2, ((0, 0), (1, 1)), constant_values=((0, 0), (0.5, 1)))
            final, _ = generate(self.directions, solver, torch.tensor(noise))
            self._nodes[flow_shift, steps] = _Nodes(torch.tensor(noise), 2 * np.diff(edges), final)
        return self._nodes[flow_shift, steps]


def generate(
    directions: Directions, solver: LinearSolver, noise: Tensor, full: Container[int] | None = None, rule: Rule = Rule()
) -> tuple[Tensor, Tensor]:
    """The final latent `(directions, nodes)`, and the predictions that the scheduler got `(steps, directions, nodes)`.

    `solver` gives the noise level of each step, and makes each latent as a weighted sum of the predictions so far and
    the initial noise `noise`, `(directions, nodes)`. Only the steps in `full` are computed, or all steps if it is None.
    `rule` holds the constants with which the runtime's functions (`galaxydit.extrapolation`) predict the other steps
    and correct full steps; `Rule()` repeats the last full step and corrects nothing.
    """
    steps, response = solver.steps, solver.response
    levels: Sequence[float] = [-float(step) for step in range(steps)] if rule.by_step else solver.sigmas
    given = torch.empty(steps + 1, *noise.shape, dtype=torch.float64)
    flat, history = given.flatten(1), tuple[CachedStep, ...]()
    given[steps] = noise
    for step in range(steps):
        if full is not None and step not in full:
            given[step] = rule.predict(history, levels[step])
            continue
        latent = solver.weights[step, :step] @ flat[:step] + solver.weights[step, -1] * flat[steps]
        output = directions.velocity(latent.view_as(noise), solver.sigmas[step])
        given[step] = output
        if rule.correction and history and step < steps - 1:
            weight = missed(levels, response, history[-1].step, step)
            predicted = rule.predict(history, levels[step])
            order = min(rule.order, len(history) - 1)
            given[step] += correction(output, predicted, weight, order, rule.correction)
        history = remember(history, CachedStep(step, levels[step], output), 2)
    return (solver.weights[-1] @ flat).view_as(noise), given[:steps]
