"""UniPC as a linear map from predictions to latents, measured with impulses on diffusers' scheduler."""

from dataclasses import dataclass
from functools import cache

import torch
from diffusers import UniPCMultistepScheduler
from torch import Tensor


@dataclass(frozen=True, eq=False)
class LinearSolver:
    """A deterministic scheduler at fixed noise levels, as a linear map.

    Attributes:
        sigmas: noise level of each step, falling, `(steps,)`.
        weights: `(steps + 1, steps + 1)`, float64. Row i makes the latent before step i, and the last row the final
            latent. Column j is the weight of the prediction of step j, and the last column that of the initial noise.
    """

    sigmas: tuple[float, ...]
    weights: Tensor

    @property
    def steps(self) -> int:
        return len(self.sigmas)

    @property
    def response(self) -> tuple[float, ...]:
        """Linear response of the final latent to each prediction, `(steps,)`.

        It is positive where a larger prediction makes the final latent smaller, as in `Recording.scheduler_response`.
        """
        return tuple((-self.weights[-1, :-1]).tolist())


@cache
def unipc(flow_shift: float, steps: int) -> LinearSolver:
    """The linear map of UniPC, the scheduler of Wan2.1, at a flow shift and number of steps."""
    scheduler = UniPCMultistepScheduler(
        prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=flow_shift, num_train_timesteps=1000
    )
    scheduler.set_timesteps(steps)
    # Rows of the batch: an impulse at each step's prediction, and one in the initial noise.
    impulses = torch.eye(steps + 1, dtype=torch.float64).reshape(steps + 1, steps + 1, 1, 1, 1)
    latent = impulses[:, -1:]
    latents = [latent.flatten()]
    for step, timestep in enumerate(scheduler.timesteps):
        latent = scheduler.step(impulses[:, step : step + 1], timestep, latent, return_dict=False)[0]
        latents.append(latent.flatten())
    return LinearSolver(tuple(scheduler.sigmas[:-1].tolist()), torch.stack(latents))
