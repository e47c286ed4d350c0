"""The measurements of Wan2.1's whole pipeline run and write what they measured; no time is asserted."""

import json
from pathlib import Path

import pytest

from galaxydit.eval.latency import whole_pipeline

TINY = ["--model", "tiny", "--steps", "20"]


def test_a_plain_and_two_accelerated_videos_are_measured(tmp_path: Path) -> None:
    out = tmp_path / "pipeline.json"
    whole_pipeline.main([*TINY, "--size", "32x32x5", "--out", str(out)])
    plain, accelerated, fast = json.loads(out.read_text())["rows"]
    assert [row["speedup"] for row in (plain, accelerated, fast)] == [None, 2.0, 3.0]
    assert accelerated["compute_fraction"] == pytest.approx(0.5)
    assert accelerated["report"]["reused_steps"] == 10
    for row in (plain, accelerated, fast):
        assert 0 < row["denoise_seconds"] < row["end_to_end_seconds"]


def test_each_stage_of_a_calibration_is_measured(tmp_path: Path) -> None:
    out = tmp_path / "calibration.json"
    options = [*TINY, "--size", "64x64x9", "--out", str(out)]
    whole_pipeline.main([*options, "--calibrate", "--budget", "0.1"])
    found = json.loads(out.read_text())
    assert [stage["what"] for stage in found["stages"] if stage["what"].endswith("1/1")] == [
        "timing 1/1", "recording 1/1", "planning 1/1"
    ]  # fmt: skip
    assert all(stage["seconds"] >= 0 for stage in found["stages"])
