"""The first line of a report: the requested speedup or quality, the reached speedup, and why they differ."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from galaxydit.policies.policy import Reason

if TYPE_CHECKING:
    from galaxydit.profiles.evidence import Verification

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


class Reported(Protocol):
    """The part of a `galaxydit.report.Report` that says how a generation went."""

    @property
    def goal(self) -> Goal | None: ...
    @property
    def calls(self) -> Sequence[Any]: ...
    @property
    def steps(self) -> int: ...
    @property
    def steps_run(self) -> int: ...
    @property
    def reused_steps(self) -> int: ...
    @property
    def computed_steps(self) -> Sequence[tuple[int, Reason]]: ...
    @property
    def compute_fraction(self) -> float: ...
    @property
    def denoise_seconds(self) -> float | None: ...
    @property
    def plain_seconds(self) -> float | None: ...


def headline(report: Reported) -> str:
    """The first line of a report: the request, the reached speedup, why they differ, and the expected PSNR."""
    asked = "Settings by hand" if report.goal is None else f"Asked for {report.goal.text}"
    fraction = report.compute_fraction
    speedup = 1 / fraction if fraction else math.inf
    line = f"{asked}, reached {speedup:.2f}x in block evaluations (compute fraction {fraction:.3f})"
    if report.plain_seconds is not None and report.denoise_seconds:
        seconds = f"denoising {report.denoise_seconds:.2f} s instead of {report.plain_seconds:.2f} s"
        line += f" and {report.plain_seconds / report.denoise_seconds:.2f}x in seconds ({seconds})"
    if why := difference(report):
        line += f", because {why}"
    return f"{line}; {expected_fidelity(report)}"


def difference(report: Reported) -> str:
    """Why a generation missed or exceeded the requested speedup by more than 5 %, else ""."""
    goal = report.goal
    if goal is None or goal.speedup is None or not report.calls:
        return ""
    fraction = report.compute_fraction
    if fraction and abs(1 / fraction / goal.speedup - 1) <= TOLERANCE:
        return ""
    ended = _early_end(report)
    if ended:
        return ended
    is_slower = fraction * goal.speedup > 1
    counts = Counter(reason for _, reason in report.computed_steps)
    reasons = dict(counts.most_common())
    unplanned = {reason: count for reason, count in reasons.items() if reason not in PLANNED}
    if unplanned and is_slower:
        return _listed(unplanned)
    run = report.steps_run
    full = run - report.reused_steps
    rows_of_step: Counter[int] = Counter()
    for call in report.calls:
        rows_of_step[call.step] += call.rows
    if len(set(rows_of_step.values())) > 1:
        return f"{full} of {run} steps were full, and guided steps have more block evaluations than others"
    causes = []
    # Whole steps alone may lie beside the goal, and on its other side.
    rounded = full / run * goal.speedup
    is_rounded = full == round(run / goal.speedup) and abs(rounded - 1) > TOLERANCE / 2
    if is_rounded and (rounded > 1) == is_slower:
        causes.append(f"{run} steps / {goal.speedup:g} are rounded to {full} full steps")
    read = proxy_blocks(report)
    if is_slower and read * goal.speedup > TOLERANCE / 2:
        causes.append(f"blocks that reused steps run to read the proxy are {read:.1%} of a plain run's")
    if causes:
        return " and ".join(causes)
    return f"{full} of {run} steps were full: {_listed(reasons)}"


def _early_end(report: Reported) -> str:
    """After which step the generation ended, an empty string if that is the last one."""
    last = max(call.step for call in report.calls)
    if last >= report.steps - 1:
        return ""
    return f"the generation ended after step {last + 1} of {report.steps}"


def proxy_blocks(report: Reported) -> float:
    """Block evaluations of reused calls, which only read the proxy / all block evaluations of a plain run."""
    total = sum(call.blocks * call.rows for call in report.calls)
    if not total:
        return 0.0
    return sum(call.blocks_run * call.rows for call in report.calls if call.reused) / total


def shortfall(report: Reported) -> str:
    """Warning text if a whole generation missed the requested speedup by more than 5 %, else "".

    Too few steps are warned of when the generation begins.
    """
    goal = report.goal
    fraction = report.compute_fraction
    why = difference(report)
    if not why or goal is None or goal.speedup is None or fraction * goal.speedup <= 1:
        return ""
    if _early_end(report) or any(call.reason in (Reason.FEW_STEPS, Reason.UNSERVED) for call in report.calls):
        return ""
    return f"{goal.speedup:g}x was asked for and {1 / fraction:.2f}x reached, because {why}"


def expected_fidelity(report: Reported) -> str:
    """Clause of the headline: the expected PSNR against the plain video, or why it is unknown."""
    if report.calls and not any(call.reused for call in report.calls):
        return "every step was computed, so the video is the plain one"
    start = "expected PSNR against the plain video:"
    if report.calls and _early_end(report):
        return f"{start} unknown, because the generation has not run to its end"
    goal = report.goal
    if goal is None:
        return f"{start} unknown"
    if goal.verified is None:
        why = goal.why_unknown
        if goal.min_psnr is not None and not why:
            why = "the profile was verified under other conditions"
        return f"{start} unknown, because {why}" if why else f"{start} unknown"
    psnr = goal.verified
    interval = "" if psnr.psnr_low is None else f" ({psnr.psnr_low:.1f} to {psnr.psnr_high:.1f})"
    return f"{start} {psnr.psnr_db:.1f} dB{interval} in the mean of the profile's {psnr.prompts} held-out prompts"


def _listed(reasons: dict[Reason, int]) -> str:
    texts = []
    for reason, count in reasons.items():
        unit = "steps" if count > 1 else "step"
        texts.append(f"{reason.value} ({count} {unit})")
    return ", ".join(texts)
