"""DiCache (Bu et al., arXiv 2508.17356; github.com/Bujiazi/DiCache, its Wan2.1 backend).

The first block runs at every step as a probe. The relative L1 change of its output is summed until it reaches a
`threshold`, in each branch. A reused step extrapolates the residuals of the last two full steps in proportion to the
change of the probe's residual. The first `first` steps are computed.
"""

from contextlib import AbstractContextManager
from functools import partial
from operator import attrgetter
from typing import Any

from diffusers import DiffusionPipeline

from galaxydit.eval.methods.method import Setting, geometric_grid, method
from galaxydit.eval.methods.rules.decision import AccumulationRule, share_of_steps, warm_ups
from galaxydit.eval.methods.rules.rule_observer import under_rule
from galaxydit.pipelines.trial import Attached

PROBED_CHANGE = attrgetter("change")  # of the first block's output since the previous step, relative L1


def settings(steps: int) -> list[Setting]:
    return [
        {"threshold": value, "first": first}
        for first in warm_ups(steps, 0.2)
        for value in geometric_grid(0.01, 0.8, 14)
    ]


def published_settings(steps: int) -> list[Setting]:
    """The authors' default, then the settings of arXiv 2610.10457 at three speedups.

    That of arXiv 2609.36433 is left out, because it needs a probe of two blocks.
    """
    published = ((0.08, 0.2), (0.155, 0.2), (0.365, 0.2), (12.0, 0.17))  # threshold, share of warm-up steps
    return [{"threshold": threshold, "first": share_of_steps(steps, share)} for threshold, share in published]


@method("DiCache", "arXiv 2508.17356", settings, published=published_settings)
def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> AbstractContextManager[Attached]:
    rule = partial(AccumulationRule, setting["threshold"], setting["first"], 0, PROBED_CHANGE)
    return under_rule(pipe, rule, signal="first_block", joint=False)
