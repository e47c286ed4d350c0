"""Control: compute the steps of a list, and at all other steps reuse each branch's last residual of the block stack.

The lists are the steps that MagCache's code (arXiv 2506.09045) computes on Wan2.1-1.3B at published settings, so the
PSNR of each list is published (`calibration/published.py`). A list needs no proxy and no threshold. A published PSNR is
comparable with a measured PSNR only at the same flow shift and guidance scale.
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
    """Settings with the published lists from accurate to fast, scaled if the generation does not have 50 steps.

    `list` is the name of a list, `full` holds its steps, and `conditional_only` further steps, computed in the
    conditional branch alone.
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
    """Return a context in which the pipeline computes the steps of the setting's lists.

    The steps of `full` are computed in both branches, those of `conditional_only` in the conditional branch alone,
    while the unconditional branch reuses its last residual. `calibration` is ignored. The context yields an `Attached`,
    whose `bytes_held` returns the bytes of the cached residuals.
    """
    full, more = setting["full"], setting.get("conditional_only", ())
    return under_rule(pipe, lambda: ScheduleRule([*full, *more], unconditional=full), joint=not more)
