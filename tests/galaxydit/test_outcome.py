"""The first line of a report: asked for, reached, why they differ, expected fidelity."""

from dataclasses import replace

import pytest

from galaxydit.config import GalaxyDiTConfig
from galaxydit.outcome import Goal, headline
from galaxydit.policies.policy import Reason
from galaxydit.profiles.evidence import Verification
from galaxydit.report import CallRecord, Report

VERIFIED = Verification(2.0, psnr_db=35.7, psnr_low=33.3, psnr_high=38.9, prompts=8)


def report_of(reused: str, goal: Goal | None, reason: Reason = Reason.SCHEDULE, steps: int | None = None) -> Report:
    """A report of one branch: "r" is a reused step, any other letter a full step."""
    calls = tuple(
        CallRecord(step, 0.5, "transformer", "cond", each == "r", reason, None, None, 0.0 if each == "r" else 10.0, 10)
        for step, each in enumerate(reused)
    )
    return Report(GalaxyDiTConfig(), steps or len(reused), calls, (), 0, 10.0, None, goal=goal)


HALF = report_of("frfr", Goal("2x (the default)", 2.0))


def test_a_goal_that_was_reached_needs_no_reason() -> None:
    assert headline(HALF) == (
        "Asked for 2x (the default), reached 2.00x in block evaluations (compute fraction 0.500); expected PSNR "
        "against the plain video: unknown"
    )


def test_seconds_are_compared_where_the_plain_ones_are_known() -> None:
    assert "and 1.90x in seconds (denoising 10.00 s instead of 19.00 s)" in headline(replace(HALF, plain_seconds=19.0))


@pytest.mark.parametrize(
    ("report", "why"),
    [
        (
            report_of("ffff", HALF.goal, Reason.FEW_STEPS),
            "reached 1.00x in block evaluations (compute fraction 1.000), because too few steps to reuse any (4 "
            "steps); every step was computed, so the video is the plain one",
        ),
        (report_of("fffr", HALF.goal, Reason.NO_BRANCH_HISTORY), "because this branch had nothing to reuse (3 steps);"),
        (report_of("frrfr", HALF.goal), "because 5 steps / 2 are rounded to 2 full steps"),
        (report_of("fff", HALF.goal, steps=9), "because the generation ended after step 3 of 9;"),
        (report_of("fffr", HALF.goal, Reason.WARM_UP), "because 3 of 4 steps were full: warm-up (3 steps);"),
        (report_of("frrr", HALF.goal), "because 1 of 4 steps were full: schedule (1 step);"),
    ],
)
def test_a_goal_that_was_not_reached_has_a_reason(report: Report, why: str) -> None:
    assert why in headline(report)


def read_by_half(full: str, blocks_run: float) -> Report:
    """A report of 2x in which each reused step runs so many of its 4 blocks to read the proxy."""
    report = report_of(full, HALF.goal)
    calls = (replace(call, blocks=4, blocks_run=blocks_run if call.reused else 4.0) for call in report.calls)
    return replace(report, calls=tuple(calls))


READ = "blocks that reused steps run to read the proxy are"


@pytest.mark.parametrize(
    ("report", "why"),
    [
        (read_by_half("frfr", 1.0), f"because {READ} 12.5% of a plain run's;"),
        (read_by_half("frfrfrf", 1.0), f"7 steps / 2 are rounded to 4 full steps and {READ} 10.7% of a plain run's;"),
        (read_by_half("frrfr", 1.0), f"because {READ} 15.0% of a plain run's;"),  # 2 full steps are less than half
        (read_by_half("frrfr", 0.1), "because 5 steps / 2 are rounded to 2 full steps;"),
    ],
)
def test_blocks_that_run_for_the_proxy_are_no_rounding(report: Report, why: str) -> None:
    assert why in headline(report)


def test_a_generation_that_ended_early_has_no_verified_psnr() -> None:
    goal = Goal("2x", 2.0, VERIFIED)
    assert "expected PSNR against the plain video: 35.7 dB" in headline(report_of("frfr", goal))
    assert "unknown, because the generation has not run to its end" in headline(report_of("frfr", goal, steps=9))


def test_other_goals_than_a_speedup_are_never_missed() -> None:
    assert "because" not in headline(report_of("fffr", Goal("threshold 0.1")))
    assert headline(report_of("fffr", None)).startswith("Settings by hand, reached 1.33x")


def test_the_expected_psnr_is_that_of_the_profile() -> None:
    verified = replace(HALF, goal=Goal("2x", 2.0, VERIFIED))
    assert headline(verified).endswith("35.7 dB (33.3 to 38.9) in the mean of the profile's 8 held-out prompts")


def test_a_psnr_that_was_asked_for_under_other_conditions_is_unknown_and_says_why() -> None:
    moved = replace(HALF, goal=Goal("a PSNR of at least 30 dB, so 2x", 2.0, None, 30.0))
    assert headline(moved).endswith("unknown, because the profile was verified under other conditions")


def test_every_report_begins_with_the_line() -> None:
    assert str(HALF).splitlines()[0] == headline(HALF) + "."
    assert HALF.to_dict()["goal"]["speedup"] == 2.0
