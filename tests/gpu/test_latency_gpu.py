"""What only an accelerator can tell: host synchronisations, memory, events; skipped where there is none.

No time is asserted here: the times are in the JSON that `galaxydit latency` writes.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from galaxydit.eval.latency.latency_run import LatencyRun
from galaxydit.eval.latency.latency_settings import LatencySettings
from galaxydit.eval.latency.model_shapes import PRESETS, VideoSize, evenly_forced
from galaxydit.eval.latency.random_models import build_inputs, build_transformer
from galaxydit.eval.latency.timed_trajectory import TimedTrajectory
from galaxydit.proxies import PIECE, relative_l1
from galaxydit.runtime.latents import HostCopy

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
TINY = LatencySettings(steps=12, repeats=1, device="cuda", mode="both")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """A tiny run of all methods, eager and compiled."""
    out = tmp_path_factory.mktemp("latency") / "run.json"
    data = LatencyRun(TINY).measure(out)
    assert data == json.loads(out.read_text())
    return data


def rows(run: dict, compiled: bool) -> dict[str, dict]:
    return {row["method"]: row for row in run["rows"] if row["compiled"] == compiled}


@pytest.mark.parametrize("compiled", [False, True])
def test_every_row_is_complete(run: dict, compiled: bool):
    for name, row in rows(run, compiled).items():
        assert row["note"] is None, f"{name}: {row['note']}"
        for field in ("full_ms", "syncs_per_step", "denoise_seconds", "speedup", "peak_bytes", "bytes_held"):
            assert row[field] is not None, (name, field)
    assert run["device"]["clock"] == "CUDA events"


@pytest.mark.parametrize("compiled", [False, True])
def test_the_host_waits_once_a_step_for_the_proxy_and_once_a_full_step_for_the_guard(run: dict, compiled: bool):
    found = {name: row["syncs_per_step"] for name, row in rows(run, compiled).items()}
    counted = run["schedule"]["full"][2] + 1  # steps up to the third full one
    compared = 2 / counted  # the guard compares the second and the third full step with the one before
    for reuse in ("output", "residual"):
        assert found[f"galaxydit {reuse}, no proxy"] <= found["plain"] + compared
        assert found[f"galaxydit {reuse}"] <= found["plain"] + compared + (counted - 1) / counted


def test_the_distance_is_right_and_allocates_one_piece():
    previous = torch.randn(1, 4 * PIECE, device="cuda", dtype=torch.bfloat16)
    current = torch.randn_like(previous)
    change, size = (current - previous).abs().double().mean(), previous.abs().double().mean()
    expected = (change / size).item()
    del change, size
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    distance = relative_l1(current, previous).item()
    allocated = torch.cuda.max_memory_allocated() - before
    assert distance == pytest.approx(expected, rel=1e-4)
    assert allocated <= 2.1 * PIECE * previous.element_size()


def test_output_reuse_adds_no_more_than_the_proxy_to_the_peak():
    """At 3,600 tokens of the 1.3B width: the proxy, and latents that are small beside it."""
    preset, size, device = replace(PRESETS["1.3B"], blocks=4), VideoSize(640, 384, 13), torch.device("cuda")
    transformer = build_transformer(preset, device, torch.bfloat16)
    inputs = build_inputs(preset, size, device, torch.bfloat16)
    peaks = {}
    for method in ("plain", "galaxydit output"):
        trajectory = TimedTrajectory(method, evenly_forced(50, 0.5), transformer, inputs)
        trajectory.run(5)
        peaks[method] = trajectory.run(5).peak_bytes or 0
    hidden = size.tokens * 1536 * 2
    latents = 5 * 2 * torch.Size(size.latent_shape).numel()
    assert peaks["galaxydit output"] - peaks["plain"] <= 2 * hidden + latents


def test_a_host_copy_is_made_when_the_device_reaches_it():
    tensor = torch.zeros(2, device="cuda")
    torch.cuda._sleep(500_000_000)  # cycles: the device is busy while the host goes on
    tensor += 1
    copy = HostCopy(tensor)
    tensor += 1
    event = copy._copied
    assert event is not None
    assert not event.query()
    assert copy.tensor().tolist() == [1.0, 1.0]


def test_the_true_shape_runs(tmp_path: Path):
    """Wan2.1-1.3B at 32,760 tokens, one method; seconds on a recent card."""
    settings = replace(
        TINY,
        model="1.3B",
        size="480p",
        steps=9,
        repeats=1,
        methods=["plain", "galaxydit output", "galaxydit output, no proxy"],
        mode="eager",
    )
    data = LatencyRun(settings).measure(tmp_path / "run.json")
    assert data["model"]["tokens"] == 32_760
    assert [row["note"] for row in data["rows"]] == [None] * 3
