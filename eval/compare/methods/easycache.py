"""EasyCache (Zhou et al., arXiv 2507.02860; github.com/H-EmbodVis/EasyCache).

Between two full steps the model's output changes about in proportion to its input (section 3.2, "transformation rate").
So the change of the input, times the rate k seen between the last two full steps, over the size of the last output,
estimates the relative change of the output; estimates add up until they reach a threshold (section 3.3). Decided in the
conditional branch, for both. Reused is the difference of prediction and latent, added to the new latent.
"""

from contextlib import AbstractContextManager
from typing import Any

from diffusers import DiffusionPipeline
from torch import Tensor

from galaxydit.eval.arena.attach import spread
from galaxydit.eval.arena.method import Attached, Method, Setting
from galaxydit.eval.arena.policies.attachment import Full, under_policy
from galaxydit.eval.arena.policies.rule import AccumulationRule, Seen, warm_ups


def predicted_change(seen: Seen) -> float | None:
    """k |x_t - x_(t-1)| / |y|; None until two full steps have given k."""
    if seen.moved is None or seen.slope is None or seen.output_size is None:
        return None
    return seen.slope * seen.moved / max(seen.output_size, 1e-12)


def settings(steps: int) -> list[Setting]:
    """With the authors' warm-up, a fifth of the steps (their 10 of 50), and without; the last step is always full."""
    return [
        {"threshold": value, "first": first, "last": 1}
        for first in warm_ups(steps, 0.2)
        for value in spread(0.012, 0.5, 14)
    ]


def repeat_difference(latent: Tensor, full: Full, branch: str, step: int) -> Tensor:
    """The latent plus what the last full step's prediction differed from its latent by."""
    return latent + (full.output - full.latent)


def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> AbstractContextManager[Attached]:
    return under_policy(
        pipe,
        lambda: AccumulationRule(setting["threshold"], setting["first"], setting["last"], predicted_change),
        signal="latent",
        predict=repeat_difference,
    )


METHOD = Method("EasyCache", "arXiv 2507.02860", settings, attach)
