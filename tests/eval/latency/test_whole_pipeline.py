"""The measurements of Wan2.1's whole pipeline run and write what they measured; no time is asserted."""

import json
from pathlib import Path

import pytest

from galaxydit.eval.latency import whole_pipeline
from galaxydit.eval.latency.latency_settings import Preset


@pytest.fixture(autouse=True)
def small_models(monkeypatch: pytest.MonkeyPatch) -> None:
    small = Preset(blocks=30, heads=2, head_dim=16, ffn_dim=32, text_dim=16)
    monkeypatch.setitem(whole_pipeline.PRESETS, "1.3B", small)
    monkeypatch.setattr(
        whole_pipeline, "TEXT_ENCODER", {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2}
    )
    monkeypatch.setattr(whole_pipeline, "AUTOENCODER", {"base_dim": 8})


def test_a_plain_and_two_accelerated_videos_are_measured(tmp_path: Path) -> None:
    out = tmp_path / "pipeline.json"
    whole_pipeline.main(["--size", "32x32x5", "--steps", "20", "--out", str(out)])
    plain, accelerated, fast = json.loads(out.read_text())["rows"]
    assert [row["speedup"] for row in (plain, accelerated, fast)] == [None, 2.0, 3.0]
    assert accelerated["compute_fraction"] == pytest.approx(0.5)
    assert accelerated["report"]["reused_steps"] == 10
    for row in (plain, accelerated, fast):
        assert 0 < row["denoise_seconds"] < row["end_to_end_seconds"]


def test_each_stage_of_a_calibration_is_measured(tmp_path: Path) -> None:
    out = tmp_path / "calibration.json"
    options = ["--size", "64x64x9", "--steps", "20", "--out", str(out)]
    whole_pipeline.main([*options, "--calibrate", "--budget", "0.1"])
    found = json.loads(out.read_text())
    assert [stage["what"] for stage in found["stages"] if stage["what"].endswith("1/1")] == [
        "timing 1/1", "recording 1/1", "planning 1/1"
    ]  # fmt: skip
    assert all(stage["seconds"] >= 0 for stage in found["stages"])
