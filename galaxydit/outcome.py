"""The first line of a report: the requested speedup or quality, the reached speedup, and why they differ."""

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from galaxydit.policies.policy import Reason

if TYPE_CHECKING:
    from galaxydit.profiles.evidence import Verification
    from galaxydit.report import Report

TOLERANCE = 0.05  # relative difference between the speedup that was asked for and the one reached
PLANNED = (Reason.WARM_UP, Reason.LAST_STEPS, Reason.SCHEDULE, Reason.ABOVE_THRESHOLD)
"""Reasons for which a step is computed according to plan. Steps computed for other reasons add to the plan."""


@dataclass(frozen=True)
class Goal:
    """The request that a generation has to meet."""

    text: str  # such as "2x (the default)"
    speedup: float | None = None  # by compute; None if the goal sets none
    verified: "Verification | None" = None  # its PSNR; None if unmeasured, or measured under other conditions
    min_psnr: float | None = None  # dB
    why_unknown: str = ""  # why nothing is verified, if the settings of the request were

    def unverified(self, why: str) -> "Goal":
        """This goal without the PSNR that was verified; the first reason stays."""
        return self if self.verified is None else replace(self, verified=None, why_unknown=why)


def headline(report: "Report") -> str:
    """The first line of a report: the request, the reached speedup, why they differ, and the expected PSNR."""
    asked = "Settings by hand" if report.goal is None else f"Asked for {report.goal.text}"
    fraction = report.compute_fraction
    saved = 1 / fraction if fraction else math.inf
    reached = f"reached {saved:.2f}x in block evaluations (compute fraction {fraction:.3f})"
    if report.plain_seconds is not None and report.denoise_seconds:
        seconds = f"denoising {report.denoise_seconds:.2f} s instead of {report.plain_seconds:.2f} s"
        reached += f" and {report.plain_seconds / report.denoise_seconds:.2f}x in seconds ({seconds})"
    why = difference(report)
    return f"{asked}, {reached}{', because ' * bool(why)}{why}; {expected_fidelity(report)}"


def difference(report: "Report") -> str:
    """Why a generation missed or exceeded the requested speedup by more than 5 %, else ""."""
    goal, fraction = report.goal, report.compute_fraction
    if goal is None or goal.speedup is None or not report.calls:
        return ""
    if fraction and abs(1 / fraction / goal.speedup - 1) <= TOLERANCE:
        return ""
    last = max(call.step for call in report.calls)
    if last < report.steps - 1:
        return f"the generation ended after step {last + 1} of {report.steps}"
    full, run, missed = report.steps_run - report.reused_steps, report.steps_run, fraction * goal.speedup
    reasons = Counter(reason for _, reason in report.computed_steps)
    unplanned = {reason: count for reason, count in reasons.most_common() if reason not in PLANNED}
    if unplanned and missed > 1:
        return _listed(unplanned)
    rows = Counter(call.step for call in report.calls for _ in range(call.rows))
    if len(set(rows.values())) > 1:
        return f"{full} of {run} steps were full, and guided steps have more block evaluations than others"
    # Whole steps alone may lie beside the goal, and on its other side.
    rounded, causes = full / run * goal.speedup, list[str]()
    is_rounded = full == round(run / goal.speedup) and abs(rounded - 1) > TOLERANCE / 2
    if is_rounded and (rounded > 1) == (missed > 1):
        causes.append(f"{run} steps / {goal.speedup:g} are rounded to {full} full steps")
    if missed > 1 and (extra := proxy_blocks(report)) * goal.speedup > TOLERANCE / 2:
        causes.append(f"blocks that reused steps run to read the proxy are {extra:.1%} of a plain run's")
    if causes:
        return " and ".join(causes)
    return f"{full} of {run} steps were full: {_listed(dict(reasons.most_common()))}"


def proxy_blocks(report: "Report") -> float:
    """Block evaluations of reused calls, which only read the proxy / all block evaluations of a plain run."""
    total = sum(call.blocks * call.rows for call in report.calls)
    return sum(call.blocks_run * call.rows for call in report.calls if call.reused) / total if total else 0.0


def shortfall(report: "Report") -> str:
    """Warning text if a whole generation missed the requested speedup by more than 5 %, else "".

    Too few steps are warned of when the generation begins.
    """
    goal, fraction, why = report.goal, report.compute_fraction, difference(report)
    if not why or goal is None or goal.speedup is None or fraction * goal.speedup <= 1:
        return ""
    early = max(call.step for call in report.calls) < report.steps - 1
    if early or any(call.reason in (Reason.FEW_STEPS, Reason.UNSERVED) for call in report.calls):
        return ""
    return f"{goal.speedup:g}x was asked for and {1 / fraction:.2f}x reached, because {why}"


def expected_fidelity(report: "Report") -> str:
    """Clause of the headline: the expected PSNR against the plain video, or why it is unknown."""
    if report.calls and not any(call.reused for call in report.calls):
        return "every step was computed, so the video is the plain one"
    start, goal = "expected PSNR against the plain video:", report.goal
    if report.calls and max(call.step for call in report.calls) < report.steps - 1:
        return f"{start} unknown, because the generation has not run to its end"
    if goal is None or goal.verified is None:
        why = "" if goal is None else goal.why_unknown
        if goal is not None and goal.min_psnr is not None:
            why = why or "the profile was verified under other conditions"
        return f"{start} unknown" + (f", because {why}" if why else "")
    psnr = goal.verified
    interval = "" if psnr.psnr_low is None else f" ({psnr.psnr_low:.1f} to {psnr.psnr_high:.1f})"
    return f"{start} {psnr.psnr_db:.1f} dB{interval} in the mean of the profile's {psnr.prompts} held-out prompts"


def _listed(reasons: dict[Reason, int]) -> str:
    return ", ".join(f"{reason.value} ({count} step{'s' * (count > 1)})" for reason, count in reasons.items())
