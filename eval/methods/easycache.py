"""EasyCache (Zhou et al., arXiv 2507.02860; github.com/H-EmbodVis/EasyCache).

The output changes roughly in proportion to the latent (section 3.2): k is the output's change / the latent's between
the last two full steps. k times the latent's change since the previous step / the output's size is summed until it
reaches a `threshold` (section 3.3). The conditional branch decides for both. A reused step adds output - latent of the
last full step. The first `first` and the last `last` steps are computed.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from diffusers import DiffusionPipeline
from torch import Tensor

from galaxydit.eval.methods.accumulation import Accumulation, Difference, attached, mean_size, share_of_steps, warm_ups
from galaxydit.eval.methods.method import Context, Setting, geometric_grid, method
from galaxydit.extrapolation import CachedStep
from galaxydit.policies.policy import Observation
from galaxydit.proxies import EASYCACHE, Place, Proxy
from galaxydit.runtime.call import Call


class MeasuredDifference(Difference):
    """Measures the output's size, and the `rate` k since the full step before; sizes are means of absolute values."""

    def measure(self, call: Call, tensor: Tensor, past: Sequence[CachedStep]) -> Mapping[str, float]:
        if not past:
            return {"output": mean_size(tensor)}
        # k = |y - y'| / |x - x'|, where y' and x' are of the full step before
        change = mean_size(call.latent - past[-1].side)
        rate = mean_size(tensor - past[-1].tensor) / max(change, 1e-12)
        return {"output": mean_size(tensor), "rate": rate}


def change_size(current: Tensor, previous: Tensor) -> Tensor:
    """mean |x_t - x_(t-1)| of each row, `(batch,)`."""
    return (current - previous).abs().flatten(1).mean(1, dtype=torch.float32)


LATENT = Proxy("latent_change", Place.LATENT, 0.0, EASYCACHE, lambda latent, sigma: latent, distance=change_size)


def predicted_change(observation: Observation) -> float | None:
    """k |x_t - x_(t-1)| / |y|, with mean absolute values; None until two full steps have given k."""
    measured = observation.measured
    if observation.distance is None or "rate" not in measured:
        return None
    # k |x_t - x_(t-1)| / |y|
    return measured["rate"] * observation.distance / max(measured["output"], 1e-12)


def settings(steps: int) -> list[Setting]:
    """The authors' warm-up, a fifth of the steps, and one step; the last step is always full."""
    grid: list[Setting] = []
    for first in warm_ups(steps, 0.2):
        for value in geometric_grid(0.012, 0.5, 14):
            grid.append({"threshold": value, "first": first, "last": 1})
    return grid


def published_settings(steps: int) -> list[Setting]:
    """The authors' setting for Wan2.1: threshold 0.05, the first 10 of 50 steps and the last one full."""
    return [{"threshold": 0.05, "first": share_of_steps(steps, 0.2), "last": 1}]


@method("EasyCache", "arXiv 2507.02860", settings, published=published_settings)
def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> Context:
    policy = Accumulation(setting["threshold"], setting["first"], setting["last"], predicted_change)
    return attached(pipe, policy, proxy=LATENT, reuse=MeasuredDifference())
