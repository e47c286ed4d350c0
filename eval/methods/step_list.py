"""Control: compute the steps of a list, and at all others reuse each branch's last residual of the block stack.

The lists are the steps that MagCache's code (arXiv 2506.09045) computes on Wan2.1-1.3B, with published PSNRs, which
compare with measured ones only at the same flow shift and guidance scale.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from diffusers import DiffusionPipeline

from galaxydit.calibration.published import load_published
from galaxydit.eval.methods.method import Setting, method
from galaxydit.eval.methods.rules.decision import ScheduleRule
from galaxydit.eval.methods.rules.rule_observer import under_rule
from galaxydit.pipelines.trial import Attached

LISTED_STEPS = 50


def settings(steps: int) -> list[Setting]:
    """The published lists from accurate to fast, scaled if the generation does not have 50 steps.

    `conditional_only` are further steps, computed in the conditional branch alone.
    """

    def scaled(listed: Sequence[int]) -> list[int]:
        return sorted({step * steps // LISTED_STEPS for step in listed})

    rows = [row for row in load_published().step_lists if row.method is None and row.plain_steps is None]
    return [
        {"list": row.name, "full": scaled(row.steps), "conditional_only": scaled(row.conditional_only)}
        for row in sorted(rows, key=lambda row: len(row.steps), reverse=True)
    ]


@method("step list", "control", settings, tuned=False)
def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> AbstractContextManager[Attached]:
    full, more = setting["full"], setting.get("conditional_only", ())
    return under_rule(pipe, lambda: ScheduleRule([*full, *more], unconditional=full), joint=not more)
