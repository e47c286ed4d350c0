"""EasyCache (Zhou et al., arXiv 2507.02860; github.com/H-EmbodVis/EasyCache).

The output changes roughly in proportion to the latent (section 3.2): k is the output's change / the latent's between
the last two full steps. k times the latent's change since the previous step / the output's size is summed until it
reaches a `threshold` (section 3.3). The conditional branch decides for both. A reused step adds output - latent of the
last full step. The first `first` and the last `last` steps are computed.
"""

from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from diffusers import DiffusionPipeline
from torch import Tensor

from galaxydit.eval.methods.method import Setting, geometric_grid, method
from galaxydit.eval.methods.rules.decision import AccumulationRule, StepObservation, share_of_steps, warm_ups
from galaxydit.eval.methods.rules.rule_observer import CachedOutput, under_rule
from galaxydit.pipelines.trial import Attached


def predicted_change(observation: StepObservation) -> float | None:
    """k |x_t - x_(t-1)| / |y|, with mean absolute values; None until two full steps have given k."""
    if observation.change_size is None or observation.slope is None or observation.output_size is None:
        return None
    return observation.slope * observation.change_size / max(observation.output_size, 1e-12)


def settings(steps: int) -> list[Setting]:
    """The authors' warm-up, a fifth of the steps, and one step; the last step is always full."""
    return [
        {"threshold": value, "first": first, "last": 1}
        for first in warm_ups(steps, 0.2)
        for value in geometric_grid(0.012, 0.5, 14)
    ]


def repeat_difference(latent: Tensor, cached: CachedOutput, branch: str, step: int) -> Tensor:
    return latent + (cached.output - cached.latent)


def published_settings(steps: int) -> list[Setting]:
    """The authors' setting for Wan2.1: threshold 0.05, the first 10 of 50 steps and the last one full."""
    return [{"threshold": 0.05, "first": share_of_steps(steps, 0.2), "last": 1}]


@method("EasyCache", "arXiv 2507.02860", settings, published=published_settings)
def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> AbstractContextManager[Attached]:
    rule = partial(AccumulationRule, setting["threshold"], setting["first"], setting["last"], predicted_change)
    return under_rule(pipe, rule, signal="latent", predict=repeat_difference)
