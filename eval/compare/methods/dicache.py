"""DiCache (Bu et al., arXiv 2508.17356; github.com/Bujiazi/DiCache, its Wan2.1 backend).

The first block runs at every step as a probe. The relative L1 change of its output since the previous step is summed
until it reaches a threshold, in each guidance branch separately. A reused step extrapolates the residuals of the last
two full steps in proportion to the probe's own residual, with a coefficient between 1 and 2.
"""

from contextlib import AbstractContextManager
from typing import Any

from diffusers import DiffusionPipeline

from galaxydit.eval.compare.identity import with_rules
from galaxydit.eval.compare.method import Attached, Method, Setting, geometric_grid
from galaxydit.eval.compare.rules.decision import AccumulationRule, StepObservation, share_of_steps, warm_ups
from galaxydit.eval.compare.rules.rule_observer import under_rule


def probed_change(observation: StepObservation) -> float | None:
    """The relative change of the first block's output since the previous step."""
    return observation.change


def settings(steps: int) -> list[Setting]:
    """With the authors' warm-up, a fifth of the steps, and without."""
    return [
        {"threshold": value, "first": first}
        for first in warm_ups(steps, 0.2)
        for value in geometric_grid(0.01, 0.8, 14)
    ]


# (threshold, share of warm-up steps) with a probe of one block: the authors' default, then the settings of arXiv
# 2610.10457 at three speedups. That of arXiv 2609.36433, (0.4, 0.2), has a probe of two blocks, which is not offered.
PUBLISHED_SETTINGS = ((0.08, 0.2), (0.155, 0.2), (0.365, 0.2), (12.0, 0.17))


def published_settings(steps: int) -> list[Setting]:
    return [{"threshold": threshold, "first": share_of_steps(steps, share)} for threshold, share in PUBLISHED_SETTINGS]


def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> AbstractContextManager[Attached]:
    return under_rule(
        pipe,
        lambda: AccumulationRule(setting["threshold"], setting["first"], 0, probed_change),
        signal="first_block",
        joint=False,
        aligned=True,
    )


METHOD = Method("DiCache", "arXiv 2508.17356", settings, attach, identity=with_rules(__file__))
METHODS = (METHOD, METHOD.published(published_settings))
