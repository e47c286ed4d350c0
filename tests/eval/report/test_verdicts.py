"""Gates on the figures of a run, by the command line."""

import json
import math
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from command_line import exit_code

from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.jobs.costs import COSTS
from galaxydit.eval.jobs.gates import Gates, check_names
from galaxydit.eval.jobs.record import VideoRecord
from galaxydit.eval.report.read_run import read_run
from galaxydit.eval.report.verdicts import Verdict, check_run
from galaxydit.eval.vbench.results import DimensionScore, Drop, Results, VariantScores, results_path
from galaxydit.files import split_digest, with_digest, write_json

PSNR = {"a": 40.0, "b": 35.0, "c": 21.0}


@pytest.fixture
def root(run_of: Callable[..., Path]) -> Path:
    """A run of three prompts with known PSNRs: 32 dB on average, 21 dB at worst."""

    def change(record: VideoRecord) -> VideoRecord:
        is_baseline = record.variant == "baseline"
        return record if is_baseline else replace(record, metrics={"psnr": PSNR[record.prompt], "ssim": 0.9})

    return run_of(list(PSNR), change, variants={"baseline": 1.0, "galaxydit": 2.0, "half": 2.0})


def call(*arguments: str | Path) -> int:
    """The exit code of `galaxydit eval check`."""
    return exit_code("eval", "check", *arguments)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--min", "psnr=31.9"], 0),
        (["--min", "psnr=32.1"], 1),
        (["--max", "psnr=31.9"], 1),
        (["--min", "psnr=31", "--min", "ssim=0.95"], 1),
        (["--min", "worst_psnr=20.9"], 0),
        (["--min", "worst_psnr=21.1"], 1),
        (["--max", "lpips=0.1"], 1),
        (["--max", "compute_fraction=0.5"], 0),
    ],
)
def test_the_exit_code_is_1_if_a_gate_fails_or_was_not_measured(root: Path, options: list[str], code: int) -> None:
    assert call(root, *options) == code


def test_the_worst_videos_are_named_with_their_files(root: Path, capsys: pytest.CaptureFixture) -> None:
    assert call(root, "--min", "psnr=33", "--variant", "galaxydit") == 1
    shown = capsys.readouterr().out
    assert "FAILS" in shown
    assert "1 of 1 gate failed" in shown
    assert "half" not in shown
    lines = [line.split() for line in shown.splitlines() if line.startswith("  ") and ".mp4" in line]
    assert [line[0] for line in lines] == ["21", "35", "40"]
    assert lines[0][1] == "'c',"
    assert Path(lines[0][-1]).is_file()


def test_gates_of_the_job_file_are_used_and_options_replace_them(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    assert call(root) == 2
    assert "has no gates" in " ".join(capsys.readouterr().err.replace("│", " ").split())
    header = json.loads((root / "run.json").read_text())
    header["conditions"]["gates"] = {"variants": ["half"], "min": {"psnr": 33}}
    (root / "run.json").write_text(json.dumps(with_digest(split_digest(header)[0])))
    assert call(root) == 1
    assert call(root, "--min", "psnr=20") == 0
    assert "all gates hold" in capsys.readouterr().out


def test_a_run_with_missing_or_failed_videos_does_not_pass(
    run_of: Callable[..., Path], failing: Callable[[VideoRecord], VideoRecord], capsys: pytest.CaptureFixture
) -> None:
    def change(record: VideoRecord) -> VideoRecord | None:
        if record.variant == "fast" and record.prompt != "a":
            return failing(record) if record.prompt == "b" else None
        return record

    root = run_of(["a", "b", "c"], change, variants={"baseline": 1.0, "fast": 2.0})
    assert call(root, "--min", "psnr=1") == 1
    assert "all gates hold; 2 videos failed, damaged or not made" in capsys.readouterr().out


def test_a_gate_fails_if_its_metric_was_measured_for_a_part_of_the_videos(
    run_of: Callable[..., Path], capsys: pytest.CaptureFixture
) -> None:
    def change(record: VideoRecord) -> VideoRecord:
        has_vmaf = record.variant != "baseline" and record.prompt == "a"
        return replace(record, metrics={**record.metrics, **({"vmaf": 95.0} if has_vmaf else {})})

    root = run_of(["a", "b"], change, variants={"baseline": 1.0, "fast": 2.0})
    assert call(root, "--min", "vmaf=90") == 1
    assert "FAILS: measured for 1 of 2 videos" in capsys.readouterr().out
    assert call(root, "--min", "vmaf=90", "--json") == 1
    (gate,) = json.loads(capsys.readouterr().out)["gates"]
    assert (gate["value"], gate["measured"], gate["videos"]) == (None, 1, 2)
    assert call(root, "--min", "psnr=1") == 0


def test_points_of_vbench_and_points_lost_are_gates(root: Path) -> None:
    def scored(points: float, drop: Drop | None) -> VariantScores:
        score = DimensionScore(0.97, points, "custom_input", True, {}, drop)
        return VariantScores({}, points, (), {"temporal_flickering": score})

    variants = {"baseline": scored(92.0, None), "galaxydit": scored(90.5, Drop(1.5, 1.0, 2.0, 3))}
    write_json(results_path(root), asdict(Results(2, "0.1.5", True, 0, variants, {})))
    gates = Gates(("galaxydit",), {"vbench_temporal_flickering": 90.0}, {"lost_temporal_flickering": 1.0})
    assert [verdict.holds for verdict in check_run(read_run(root), gates)] == [True, False]
    (verdict,) = check_run(read_run(root), Gates(("galaxydit",), max={"lost_total": 1.6}))
    assert (verdict.value, verdict.holds) == (1.5, True)
    (verdict,) = check_run(read_run(root), Gates(("half",), min={"vbench_total": 1.0}))
    assert (verdict.value, verdict.holds) == (None, False)


def test_json_holds_the_verdicts(root: Path, capsys: pytest.CaptureFixture) -> None:
    assert call(root, "--min", "psnr=33", "--variant", "half", "--json") == 1
    data = json.loads(capsys.readouterr().out)
    (gate,) = data["gates"]
    assert (gate["variant"], gate["gate"], gate["min"], gate["holds"]) == ("half", "psnr", 33.0, False)
    assert gate["value"] == pytest.approx(32.0)
    assert [video["value"] for video in gate["worst"]] == [21.0, 35.0, 40.0]


@pytest.mark.parametrize("value", [None, math.nan])
@pytest.mark.parametrize("is_minimum", [True, False])
def test_a_value_that_is_missing_or_undefined_meets_no_limit(value: float | None, is_minimum: bool) -> None:
    assert not Verdict("fast", "psnr", value, 0.0, is_minimum).holds


@pytest.mark.parametrize("options", [["--min", "psnr"], ["--min", "psnr=x"], ["--max", "lpips=inf"], ["--min", "x=1"]])
def test_gates_that_cannot_be_read_are_refused(root: Path, options: list[str]) -> None:
    assert call(root, *options) == 2


def test_an_unknown_gate_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(GalaxyDiTError, match=r"did you mean 'lost_temporal_flickering'"):
        check_names(Gates(max={"lost_temporal_flikering": 1.0}))


def test_every_cost_of_a_report_can_be_a_gate() -> None:
    check_names(Gates(max={f"{worst}{cost.key}": 1.0 for cost in COSTS for worst in ("", "worst_")}))
