"""Control: compute the steps of a list, and at all others reuse each branch's last residual of the block stack.

The lists are the steps that MagCache's code (arXiv 2506.09045) computes on Wan2.1-1.3B, with published PSNRs, which
compare with measured ones only at the same flow shift and guidance scale.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from diffusers import DiffusionPipeline

from galaxydit import FixedSteps
from galaxydit.eval.methods.accumulation import attached
from galaxydit.eval.methods.method import Setting, method
from galaxydit.eval.methods.published_wan import STEP_LISTS
from galaxydit.pipelines.trial import Attached
from galaxydit.policies.policy import Decision, Observation, Reason
from galaxydit.runtime.guidance import CONDITIONAL

LISTED_STEPS = 50


@dataclass(frozen=True)
class ListedSteps(FixedSteps):
    """Computes `steps`, and in the conditional branch also `conditional_only`, if each branch decides alone."""

    conditional_only: tuple[int, ...] = ()

    def decide(self, observation: Observation, state: None = None) -> tuple[Decision, None]:
        if observation.branch == CONDITIONAL and observation.step in self.conditional_only:
            return Decision(False, Reason.SCHEDULE), None
        return super().decide(observation)


def scaled(listed: Sequence[int], steps: int) -> list[int]:
    """The listed ones of 50 steps, scaled to another number of steps."""
    return sorted({step * steps // LISTED_STEPS for step in listed})


def settings(steps: int) -> list[Setting]:
    """The published lists from accurate to fast, scaled if the generation does not have 50 steps.

    `conditional_only` are further steps, computed in the conditional branch alone.
    """
    return [
        {"list": row.name, "full": scaled(row.steps, steps), "conditional_only": scaled(row.conditional_only, steps)}
        for row in STEP_LISTS
    ]


@method("step list", "control", settings, tuned=False)
def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> AbstractContextManager[Attached]:
    more = tuple(setting.get("conditional_only", ()))
    return attached(pipe, ListedSteps(tuple(setting["full"]), more), guidance_alignment=not more)
