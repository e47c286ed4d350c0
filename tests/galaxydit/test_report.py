import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from matplotlib.figure import Figure
from PIL import Image

from galaxydit.config import GalaxyDiTConfig
from galaxydit.policies.policy import Decision, Reason
from galaxydit.policies.threshold import Threshold
from galaxydit.report import CallRecord, Report


def call(
    step: int, branch: str, *, reused: bool, reason: Reason = Reason.BELOW_THRESHOLD, accumulated: float = 0.1
) -> CallRecord:
    return CallRecord(
        step=step,
        sigma=1 - step / 4,
        transformer="transformer",
        branch=branch,
        reused=reused,
        reason=reason,
        distance=0.1,
        accumulated=accumulated,
        blocks_run=1.0 if reused and branch == "cond" else 0.0 if reused else 10.0,
        blocks=10,
    )


def report(*calls: CallRecord, notes: tuple[str, ...] = ()) -> Report:
    return Report(GalaxyDiTConfig(), 4, calls, notes, 2**20, 2.0, 2.5)


@pytest.fixture
def half_reused() -> Report:
    branches = ("cond", "uncond")
    computed = [call(step, branch, reused=False, reason=Reason.WARM_UP) for step in (0, 1) for branch in branches]
    return report(*computed, *(call(step, branch, reused=True) for step in (2, 3) for branch in branches))


def test_the_compute_fraction_counts_blocks(half_reused: Report) -> None:
    assert half_reused.compute_fraction == pytest.approx(42 / 80)
    assert half_reused.reused_steps == 2


def test_a_generation_that_was_abandoned_says_how_many_of_its_steps_ran(half_reused: Report) -> None:
    abandoned = replace(half_reused, calls=half_reused.calls[:6])
    assert str(abandoned).splitlines()[1].endswith("; 3 of 4 steps ran")
    assert "steps ran" not in str(half_reused)


def test_a_policy_of_ones_own_never_breaks_the_report(half_reused: Report, tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class FromFile(Threshold):
        path: Path = Path("steps.txt")

    own = replace(half_reused, config=GalaxyDiTConfig(FromFile()))
    own.save(tmp_path / "report.json")
    assert json.loads((tmp_path / "report.json").read_text())["config"]["policy"]["path"] == "steps.txt"


def test_a_policy_that_is_no_dataclass_is_reported_by_its_name(half_reused: Report) -> None:
    class Odd:
        reads_proxy, reuses, learns_errors = False, True, False

        def decide(self, observation: Any, state: Any = None) -> tuple[Decision, Any]:
            return Decision(observation.step % 2 == 1, Reason.CUSTOM), None

    own = replace(half_reused, config=GalaxyDiTConfig(Odd()))
    assert own.to_dict()["config"]["policy"]["name"] == "Odd"


def test_a_step_reused_in_one_branch_alone_is_no_reused_step() -> None:
    mixed = report(call(0, "cond", reused=True), call(0, "uncond", reused=False))
    assert mixed.reused_steps == 0


def test_a_run_that_reused_nothing_says_why() -> None:
    text = str(report(call(0, "cond", reused=False, reason=Reason.WARM_UP), notes=("the model is odd",)))
    assert "0 of 1 steps reused" in text
    assert "warm-up (1 step)" in text
    assert "Note: the model is odd." in text


def test_the_text_reads_like_a_result(half_reused: Report) -> None:
    text = str(Report(half_reused.config, 4, half_reused.calls, ("odd", "short"), 2**20, 2.0, 2.5))
    assert text.splitlines() == [
        "Settings by hand, reached 1.90x in block evaluations (compute fraction 0.525); expected PSNR against the "
        "plain video: unknown.",
        "2 of 4 steps reused",
        "denoising 2.00 s, end to end 2.50 s, at most 1.00 MiB cached",
        "Steps were computed because of:",
        "  - warm-up (2 steps)",
        "Note: odd.",
        "Note: short.",
    ]


def test_a_notebook_shows_a_table_and_every_step_and_runs_nothing(half_reused: Report) -> None:
    odd = replace(half_reused, notes=("<script>alert(1)</script>",))
    page = odd._repr_html_()
    assert page.count("<rect") == len(half_reused.calls)
    titles = re.findall(r"<title>step (\d): (\w+), ([^<]+)</title>", page)
    of_branch = [("0", "computed"), ("1", "computed"), ("2", "reused"), ("3", "reused")]
    assert [title[:2] for title in titles] == of_branch * 2
    assert titles[0][2] == "warm-up"
    assert "2 of 4 steps reused" in page
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    ElementTree.fromstring(f"<div>{page}</div>")  # well-formed
    assert "<rect" not in report()._repr_html_()


def test_a_report_of_many_calls_is_short_where_it_is_printed_and_logged() -> None:
    calls = [call(step, branch, reused=step % 2 == 1) for step in range(200) for branch in ("cond", "uncond")]
    long = replace(report(*calls, notes=("odd",)), steps=200)
    assert repr(long) == "<Report: 100 of 200 steps reused, compute fraction 0.525, denoising 2.00 s, 1 note>"
    short, full = long.to_dict(calls=False), long.to_dict()
    assert len(json.dumps(short)) < 1000
    assert short == {name: value for name, value in full.items() if name != "calls"}


def test_many_samples_are_shown_in_part_and_counted() -> None:
    calls = [replace(call(step, "cond", reused=False), sample=sample) for step in range(4) for sample in range(11)]
    page = report(*calls)._repr_html_()
    assert page.count("<rect") == 8 * 4
    assert "3 more rows are not shown" in page


def test_the_saved_report_is_strict_json_even_with_infinite_sums(half_reused: Report, tmp_path: Path) -> None:
    endless = report(*half_reused.calls, call(3, "cond", reused=False, accumulated=float("inf")))
    endless.save(tmp_path / "report.json")
    data = json.loads((tmp_path / "report.json").read_text(), parse_constant=pytest.fail)
    assert data["calls"][-1]["accumulated"] is None
    assert {call["reason"] for call in data["calls"]} == {"WARM_UP", "BELOW_THRESHOLD"}
    assert data["compute_fraction"] == endless.compute_fraction
    assert data["config"]["policy"] == {"name": "Threshold", "threshold": GalaxyDiTConfig().policy.threshold}


def test_the_plot_shows_computed_and_reused_steps_in_their_colours(half_reused: Report, tmp_path: Path) -> None:
    figure = half_reused.plot(tmp_path / "decisions.png")
    assert isinstance(figure, Figure)
    with Image.open(tmp_path / "decisions.png") as picture:
        colours = {colour for _, colour in picture.convert("RGB").getcolors(2**24) or ()}
    assert {(0x1F, 0x6F, 0x8B), (0xF2, 0xA5, 0x41)} <= colours
