"""DiCache (Bu et al., arXiv 2508.17356; github.com/Bujiazi/DiCache, its Wan2.1 backend).

The first block runs at every step, as a probe: the relative L1 change of its output since the step before adds up until
it reaches a threshold, in each guidance branch for itself. A reused step goes from the residual of the last full step
but one towards the last one's, as far as the probe's own residual has gone, and between once and twice the way.
"""

from contextlib import AbstractContextManager
from typing import Any

from diffusers import DiffusionPipeline

from galaxydit.eval.arena.attach import spread
from galaxydit.eval.arena.method import Attached, Method, Setting
from galaxydit.eval.arena.policies.attachment import under_policy
from galaxydit.eval.arena.policies.rule import AccumulationRule, Seen, warm_ups


def probed_change(seen: Seen) -> float | None:
    """The relative change of the first block's output since the step before."""
    return seen.change


def settings(steps: int) -> list[Setting]:
    """With the authors' warm-up, a fifth of the steps, and without."""
    return [{"threshold": value, "first": first} for first in warm_ups(steps, 0.2) for value in spread(0.01, 0.8, 14)]


def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> AbstractContextManager[Attached]:
    return under_policy(
        pipe,
        lambda: AccumulationRule(setting["threshold"], setting["first"], 0, probed_change),
        signal="first_block",
        joint=False,
        aligned=True,
    )


METHOD = Method("DiCache", "arXiv 2508.17356", settings, attach)
