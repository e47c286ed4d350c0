"""The measurement of Wan2.1's whole pipeline runs and writes what it measured; no time is asserted."""

import json
from pathlib import Path

import pytest

from galaxydit.eval.latency import whole_pipeline
from galaxydit.eval.latency.latency_settings import Preset


def test_a_plain_and_two_accelerated_videos_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = Preset(blocks=30, heads=2, head_dim=16, ffn_dim=32, text_dim=16)
    monkeypatch.setitem(whole_pipeline.PRESETS, "1.3B", small)
    monkeypatch.setattr(
        whole_pipeline, "TEXT_ENCODER", {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2}
    )
    monkeypatch.setattr(whole_pipeline, "AUTOENCODER", {"base_dim": 8})
    out = tmp_path / "pipeline.json"
    whole_pipeline.main(["--size", "32x32x5", "--steps", "20", "--out", str(out)])
    plain, accelerated, fast = json.loads(out.read_text())["rows"]
    assert [row["speedup"] for row in (plain, accelerated, fast)] == [None, 2.0, 3.0]
    assert accelerated["compute_fraction"] == pytest.approx(0.5)
    assert accelerated["report"]["reused_steps"] == 10
    for row in (plain, accelerated, fast):
        assert 0 < row["denoise_seconds"] < row["end_to_end_seconds"]
