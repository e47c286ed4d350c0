"""The measurements on a GPU continue where they stopped, and the tables count complete rounds alone."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.gpu.gpu_file import GpuFile
from galaxydit.eval.gpu.gpu_tables import parts_tables, pipelines_table, timed_pipelines
from galaxydit.eval.gpu.measuring import main
from galaxydit.eval.gpu.turns import MeasuredPart, OutOfTimeError, TimeLimit, Turn, expected_seconds, run_part
from galaxydit.eval.results_page import RESULTS
from galaxydit.pipelines.written_by import GPU, write_own_json

CPU = torch.device("cpu")
SETTINGS = {"tiny": False, "eager": False}


def test_a_round_of_the_pipeline_is_measured_and_a_second_call_measures_nothing_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    out = tmp_path / "measure.json"
    command = ["a", "--tiny", "--eager", "--rounds", "1", "--commit", "0123456789ab", "--out", str(out)]
    assert main(command, started=time.monotonic()) == 0
    first = json.loads(out.read_text())
    prepared, plain, double, triple = first["rows"]
    assert [row["variant"] for row in first["rows"]] == ["preparation", "plain", "2x", "3x"]
    assert [row["full_steps"] for row in (plain, double, triple)] == [26, 13, 9]
    assert prepared["graphs_compiled"] == 0
    for row in (plain, double, triple):
        parts = [row["seconds"][name] for name in ("text_encoding", "denoising", "decoding")]
        assert min(parts) > 0
        assert sum(parts) == pytest.approx(row["seconds"]["whole"])
    assert first["sessions"][0]["commit"] == "0123456789ab"
    assert main(command, started=time.monotonic()) == 0
    assert json.loads(out.read_text())["rows"] == first["rows"]
    assert "skipped: a 3x, round 1" in caplog.text


def test_each_stage_of_a_calibration_is_measured(tmp_path: Path) -> None:
    out = tmp_path / "measure.json"
    assert main(["b", "--tiny", "--commit", "0123456789ab", "--out", str(out)], started=time.monotonic()) == 0
    stages = json.loads(out.read_text())["rows"][-1]["stages"]
    finished = [stage["what"] for stage in stages if stage["what"].endswith("1/1")]
    assert finished == ["timing 1/1", "recording 1/1", "checking 1/1", "recording 1/1", "planning 1/1"]
    assert all(stage["seconds"] >= 0 for stage in stages)


def opened(path: Path) -> GpuFile:
    file = GpuFile.open(path, "a GPU", SETTINGS)
    file.begin({"part": "a", "date": "2026-11-28T20:00:00+00:00", "commit": "0123456789ab"})
    return file


def part_of(*measures: Any) -> MeasuredPart:
    turns = [Turn(f"variant {index}", 1, 10.0, measure) for index, measure in enumerate(measures)]
    return MeasuredPart("a", "a test", dict, 1.0, tuple(turns))


def no_limit() -> TimeLimit:
    return TimeLimit(None, time.monotonic())


def test_nothing_begins_that_would_not_fit(tmp_path: Path) -> None:
    file = opened(tmp_path / "measure.json")
    run_part(part_of(dict), file, TimeLimit(12.0, time.monotonic()), CPU)
    assert file.rows == []
    run_part(part_of(dict), file, TimeLimit(20.0, time.monotonic()), CPU)
    assert [row["variant"] for row in file.rows] == ["preparation", "variant 0"]


def test_a_slow_device_scales_what_is_expected_of_the_turns_to_come(tmp_path: Path) -> None:
    file = opened(tmp_path / "measure.json")
    part = part_of(dict, dict)
    file.add("a", "variant 0", 1, {"finished": True, "wall_seconds": 30.0})
    assert [expected_seconds(turn, part, file) for turn in part.turns] == [30.0, 30.0]


def test_a_variant_that_fails_is_left_out_with_its_reason_and_the_others_are_measured(tmp_path: Path) -> None:
    def fail() -> dict[str, Any]:
        raise RuntimeError("no such kernel")

    file = opened(tmp_path / "measure.json")
    run_part(part_of(fail, dict), file, no_limit(), CPU)
    assert [row["variant"] for row in file.rows] == ["preparation", "variant 1"]
    (left_out,) = json.loads(file.path.read_text())["sessions"][0]["left_out"]
    assert left_out["variant"] == "variant 0"
    assert "no such kernel" in left_out["why"]


def test_a_measurement_that_ran_out_of_time_is_taken_up_again(tmp_path: Path) -> None:
    file = opened(tmp_path / "measure.json")

    def stop() -> dict[str, Any]:
        file.add("a", "variant 0", 1, {"finished": False, "stages": [1]})
        raise OutOfTimeError

    run_part(part_of(stop), file, no_limit(), CPU)
    again = opened(file.path)
    run_part(part_of(lambda: {"stages": [1, 2]}), again, no_limit(), CPU)
    row = again.find("a", "variant 0", 1)
    assert row is not None
    assert row["finished"]
    assert row["stages"] == [1, 2]
    assert row["session"] == 1


@pytest.mark.parametrize(("device", "settings"), [("another GPU", SETTINGS), ("a GPU", {"tiny": True, "eager": False})])
def test_a_file_of_another_device_or_of_other_settings_is_refused(
    tmp_path: Path, device: str, settings: dict[str, bool]
) -> None:
    opened(tmp_path / "measure.json")
    with pytest.raises(GalaxyDiTError, match="--force"):
        GpuFile.open(tmp_path / "measure.json", device, settings)


def results_with(folder: Path, rounds: list[list[str]]) -> Path:
    """A folder of results with the earlier runs, and a file in which each round has these variants."""
    (folder / "gpu").mkdir()
    for path in (RESULTS / "gpu").glob("pipeline-*.json"):
        (folder / "gpu" / path.name).write_bytes(path.read_bytes())
    rows = []
    for index, variants in enumerate(rounds, 1):
        for variant in variants:
            seconds = {"plain": 40.0, "2x": 20.0, "3x": 10.0}[variant] + index
            speedup = {"plain": None, "2x": 2.0, "3x": 3.0}[variant]
            rows.append(
                {"part": "a", "variant": variant, "round": index, "session": 0, "finished": True, "model": "1.3B",
                 "compiled": True, "speedup": speedup, "peak_bytes": 24e9,
                 "seconds": {"denoising": seconds, "whole": seconds + 4}, "joules": {"denoising": None, "whole": 20e3}}
            )  # fmt: skip
    session = {"date": "2026-11-28T20:00:00+00:00", "commit": "0123456789ab"}
    data = {"device": "a GPU", "settings": SETTINGS, "sessions": [session], "rows": rows}
    write_own_json(folder / "gpu" / "measure-a-GPU.json", GPU, data)
    return folder


EVERY = ["plain", "2x", "3x"]


@pytest.mark.parametrize(
    ("rounds", "how", "seconds"),
    [
        ([EVERY], "one round", 45.0),
        ([EVERY, EVERY], "mean of 2 interleaved rounds", 45.5),
        ([EVERY, ["plain"]], "one round", 45.0),
    ],
)
def test_the_table_names_the_complete_rounds_whose_mean_it_shows(
    tmp_path: Path, rounds: list[list[str]], how: str, seconds: float
) -> None:
    timed = timed_pipelines(results_with(tmp_path, rounds))[0]
    assert timed.how == f"{how}, measured on 28 November 2026 at commit 0123456789ab"
    assert timed.row(None)["end_to_end_seconds"] == seconds
    assert timed.row(None)["denoise_joules"] is None
    assert "a GPU, compiled, " + how in pipelines_table(tmp_path, tmp_path / "README.md")


def test_without_a_complete_round_the_earlier_run_stays_with_its_date(tmp_path: Path) -> None:
    timed = timed_pipelines(results_with(tmp_path, [["plain", "2x"]]))[0]
    assert "H100" in timed.device
    assert "27 November 2026" in timed.how


def test_parts_that_were_not_measured_are_named(tmp_path: Path) -> None:
    text = parts_tables(results_with(tmp_path, [EVERY]), tmp_path / "README.md")
    assert "Not measured yet" in text
    assert "the 14B at 720p" in text
