"""Compute the steps that published code computes on Wan2.1-T2V-1.3B, and reuse the residual of the block stack between.

The control is lists of MagCache's code (arXiv 2506.09045) with published PSNRs, which compare with measured ones only
at the same flow shift and guidance scale. LeMiCa (arXiv 2511.00090) planned its lists by the final video's error for
50 steps of UniPC at flow shift 5 and guidance scale 5; with the plugin's reuse, the lists alone are compared. BudCache
(arXiv 2606.13496) anneals on the final latent's error, 300 videos for each list; its lists are those of arXiv
2609.39343's repository for the same settings and 65 frames.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from diffusers import DiffusionPipeline

from galaxydit import FixedSteps, GalaxyDiTConfig
from galaxydit.eval.methods.accumulation import attached
from galaxydit.eval.methods.method import Context, Setting, Settings, method
from galaxydit.pipelines.trial import accelerated
from galaxydit.policies.policy import Decision, Observation, Reason
from galaxydit.runtime.guidance import CONDITIONAL

LISTED_STEPS = 50


@dataclass(frozen=True)
class StepList:
    """A published PSNR in dB with the computed steps of 50; `conditional_only` are further ones of that branch."""

    name: str
    flow_shift: float
    guidance: float
    psnr: float
    steps: tuple[int, ...]
    conditional_only: tuple[int, ...] = ()


# PSNRs: arXiv 2506.09045, table 1 (shift 8); 2610.10457, tables 2 and 7 (shift 5); 2609.36433, table 1 (shift 3).
_TEN = tuple(range(10))
STEP_LISTS = (
    StepList("24 steps, shift 8", 8, 6, 23.42, (*_TEN, 12, 15, 18, 21, 24, 27, 30, 33, 36, 39, 42, 45, 47, 49)),
    StepList("19 steps, shift 8", 8, 6, 21.54, (*_TEN, 14, 19, 24, 29, 34, 39, 43, 46, 48)),
    StepList("19 steps, shift 5", 5, 5, 22.31, (*_TEN, 16, 23, 29, 34, 38, 42, 45, 47, 49)),
    StepList("18 steps, shift 3", 3, 5, 22.16, (*range(5), 9, 14, 19, 24, 29, 33, 37, 40, 43, 45, 47, 48, 49)),
    StepList("14.5 steps, shift 5", 5, 5, 20.04, (*_TEN, 18, 27, 36, 45), conditional_only=(49,)),
    StepList("first 10 steps, shift 5", 5, 5, 17.03, _TEN),
)
"""From accurate to fast."""
LEMICA: Sequence[Sequence[int]] = (
    (*range(13), 14, 16, 18, 21, 24, 29, 35, 40, 44, 47, 48, 49),
    (*range(10), 11, 13, 16, 20, 26, 33, 40, 45, 48, 49),
    (*range(9), 10, 13, 18, 25, 32, 39, 46, 49),
    (*range(6), 7, 10, 16, 23, 30, 37, 44, 49),
)
"""From accurate to fast."""
BUDCACHE: Sequence[Sequence[int]] = (
    (*range(5), 6, 7, 9, 12, 17, 21, 24, 25, 30, 34, 37, 41, 43, 45, 47, 49),
    (*range(5), 6, 7, 10, 13, 24, 36, 45, 49),
    (*range(4), 5, 7, 20, 41, 49),
)
"""From accurate to fast."""


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
    """The control's lists; `conditional_only` are further steps, computed in the conditional branch alone."""
    return [
        {"list": row.name, "full": scaled(row.steps, steps), "conditional_only": scaled(row.conditional_only, steps)}
        for row in STEP_LISTS
    ]


def settings_of(lists: Sequence[Sequence[int]]) -> Settings:
    return lambda steps: [{"full": scaled(listed, steps)} for listed in lists]


@method("step list", "control", settings, tuned=False)
@method("LeMiCa published", "LeMiCa, arXiv 2511.00090", settings_of(LEMICA), tuned=False)
@method("BudCache published", "BudCache, arXiv 2606.13496", settings_of(BUDCACHE), tuned=False)
def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> Context:
    more = tuple(setting.get("conditional_only", ()))
    return attached(pipe, ListedSteps(tuple(setting["full"]), more), guidance_alignment=not more)


@method("LeMiCa with galaxydit's reuse", "LeMiCa, arXiv 2511.00090", settings_of(LEMICA), tuned=False)
def attach_reuse(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> Context:
    return accelerated(pipe, config=GalaxyDiTConfig(FixedSteps(tuple(setting["full"]))))
