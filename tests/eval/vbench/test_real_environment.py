"""The real VBench, in an environment made as eval/README.md shows.

GALAXYDIT_TEST_VBENCH=vbench-environment pytest tests/eval/vbench/test_real_environment.py
"""

import os
from pathlib import Path

import numpy as np
import pytest

from galaxydit.eval.metrics.flicker import TEMPORAL_FLICKERING
from galaxydit.eval.published.vbench import DIMENSIONS
from galaxydit.eval.report.read_run import read_run
from galaxydit.eval.vbench.run import evaluate, open_environment
from galaxydit.pipelines.runs import Unit
from galaxydit.pipelines.video import load_video

WANTED = pytest.mark.skipif("GALAXYDIT_TEST_VBENCH" not in os.environ, reason="set GALAXYDIT_TEST_VBENCH to run it")
CAPTIONS = ("a red ball moves right", "a/b?", "<script>" + "x" * 300, "日本 🐈")


def frames_of(unit: Unit) -> np.ndarray:
    """A moving pattern; the fast variant flickers more."""
    t, y, x, c = np.meshgrid(*(np.arange(n) for n in (9, 48, 64, 3)), indexing="ij")
    noise = np.random.default_rng(unit.data["prompt_index"]).normal(
        0, 8 if unit.data["variant"]["name"] == "fast" else 3, t.shape
    )
    return np.clip(120 + 80 * np.sin(0.2 * x + 0.1 * y + 0.5 * t + c + unit.data["seed"]) + noise, 0, 255).astype(
        np.uint8
    )


@WANTED
def test_temporal_flickering_is_that_of_vbench_itself(make_run, tmp_path):
    environment = open_environment(Path(os.environ["GALAXYDIT_TEST_VBENCH"]))
    run = make_run(CAPTIONS, samples=2, frames=frames_of)
    results = evaluate(run, ["temporal_flickering"], environment)
    assert results.failed == {}
    assert results.package_version == "0.1.5"
    for variant, scores in results.variants.items():
        score = scores.dimensions["temporal_flickering"]
        ours = {
            record.unit: TEMPORAL_FLICKERING(load_video(run / record.video))
            for record in read_run(run).records
            if record.variant == variant
        }
        assert score.videos == pytest.approx(ours, abs=1e-6)
        assert score.score == pytest.approx(np.mean(list(ours.values())), abs=1e-6)
    drop = results.variants["fast"].dimensions["temporal_flickering"].drop
    assert drop.low > 0

    # Every other one is refused for the prompts or for want of weights, before the benchmark could try to get them.
    for name, dimension in DIMENSIONS.items():
        if name != "temporal_flickering":
            with pytest.raises(ValueError, match=f"{name} needs" if dimension.custom else "takes only the prompts"):
                evaluate(run, [name], environment, tmp_path / "no-weights")
