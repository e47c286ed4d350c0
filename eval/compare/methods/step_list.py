"""Control: compute a given list of steps, and reuse the residual of the block stack per branch at all others.

The lists are those that MagCache's code (arXiv 2506.09045) computes on Wan2.1-1.3B at published settings, so the PSNR
of each is published: 23.42, 21.54, 22.31, 22.16, 20.04 and 17.03 dB, in this order. They need no proxy and no
threshold. PSNRs compare only at equal flow shift and guidance scale: 6 at flow shift 8, and 5 at the others.
"""

from contextlib import AbstractContextManager
from typing import Any

from diffusers import DiffusionPipeline

from galaxydit.eval.compare.identity import with_rules
from galaxydit.eval.compare.method import Attached, Method, Setting
from galaxydit.eval.compare.rules.decision import ScheduleRule
from galaxydit.eval.compare.rules.rule_observer import under_rule

LISTED_STEPS = 50
FIRST_TEN = range(10)
LISTS: dict[str, tuple[int, ...]] = {
    "shift 8, 24 steps": (*FIRST_TEN, 12, 15, 18, 21, 24, 27, 30, 33, 36, 39, 42, 45, 47, 49),
    "shift 8, 19 steps": (*FIRST_TEN, 14, 19, 24, 29, 34, 39, 43, 46, 48),
    "shift 5, 19 steps": (*FIRST_TEN, 16, 23, 29, 34, 38, 42, 45, 47, 49),
    "shift 3, 18 steps": (0, 1, 2, 3, 4, 9, 14, 19, 24, 29, 33, 37, 40, 43, 45, 47, 48, 49),
    "shift 5, 14.5 steps": (*FIRST_TEN, 18, 27, 36, 45),
    "shift 5, 10 steps": (*FIRST_TEN,),
}
CONDITIONAL_ONLY = {"shift 5, 14.5 steps": (49,)}


def settings(steps: int) -> list[Setting]:
    """The published lists, scaled if the generation does not have 50 steps."""
    scaled = {
        name: [sorted({step * steps // LISTED_STEPS for step in one}) for one in (full, CONDITIONAL_ONLY.get(name, ()))]
        for name, full in LISTS.items()
    }
    return [{"list": name, "full": full, "conditional_only": more} for name, (full, more) in scaled.items()]


def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> AbstractContextManager[Attached]:
    """Compute the steps in `full`, and those in `conditional_only` in the conditional branch alone."""
    full, more = setting["full"], setting.get("conditional_only", ())
    return under_rule(pipe, lambda: ScheduleRule([*full, *more], unconditional=full), joint=not more)


METHOD = Method("step list", "control", settings, attach, identity=with_rules(__file__), tuned=False)
