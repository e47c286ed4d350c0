"""The latency command runs, forces the decisions it says and writes what it measured; no time is asserted."""

import itertools
import warnings
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import exit_code
from diffusers.models.attention_dispatch import AttentionBackendName, attention_backend

from galaxydit.cli import main
from galaxydit.eval.latency.latency_rows import LatencySamples, load, rows_from, spread_of
from galaxydit.eval.latency.latency_run import LatencyRun
from galaxydit.eval.latency.latency_settings import INSTALLED, LatencySettings
from galaxydit.eval.latency.latency_table import markdown
from galaxydit.eval.latency.model_shapes import PRESETS, ForcedSteps, Preset, VideoSize, evenly_forced, parse_size
from galaxydit.eval.latency.random_models import build_inputs, build_transformer
from galaxydit.eval.latency.timed_methods import METHODS
from galaxydit.eval.latency.timed_trajectory import TimedTrajectory

RESULTS = Path(__file__).parents[3] / "eval" / "results"
CPU = torch.device("cpu")
SMALL = Preset(blocks=3, heads=2, head_dim=16, ffn_dim=32, text_dim=16, text_tokens=4)
# Block evaluations of a reused step in both branches: the first block where a method reads it.
REUSED_BLOCKS = {
    "plain": 2 * SMALL.blocks,
    "galaxydit output": 1,
    "galaxydit residual": 1,
    "galaxydit output, no proxy": 0,
    "galaxydit residual, no proxy": 0,
    "FirstBlockCache": 2,
    "SeaCache": 0,
    "cache-dit": 2,
}
QUICK = LatencySettings(size="32x32x5", steps=12, repeats=1, device="cpu")


@pytest.fixture(autouse=True)
def small_preset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PRESETS, "tiny", SMALL)


def test_every_method_has_a_row_whose_fraction_is_the_forced_one(tmp_path: Path) -> None:
    data = LatencyRun(QUICK).measure(tmp_path / "run.json")
    assert data.pop("digest")
    assert data == load(tmp_path / "run.json")
    assert data["finished"]
    rows = {row["method"]: row for row in data["rows"]}
    assert set(rows) == set(INSTALLED)
    full = len(data["schedule"]["full"]) / 12
    assert full == 0.5
    probed = full + (1 - full) / (2 * SMALL.blocks)
    both_probed = full + (1 - full) / SMALL.blocks
    expected = {
        "plain": 1.0,
        "galaxydit output": probed,
        "galaxydit residual": probed,
        "galaxydit output, no proxy": full,
        "galaxydit residual, no proxy": full,
        "FirstBlockCache": both_probed,
        "SeaCache": full,
        "cache-dit": both_probed,
    }
    for name, row in rows.items():
        assert row["compute_fraction"] == pytest.approx(expected[name]), name
        assert row["efficiency"] == pytest.approx(row["speedup"] * row["compute_fraction"])
        assert row["full_ms"]["low"] <= row["full_ms"]["median"] <= row["full_ms"]["high"]
        assert (row["reused_ms"] is None) == (name == "plain")
        assert row["syncs_per_step"] is None, "a CPU does not synchronize"
        assert row["peak_bytes"] is None
        assert row["note"] is None
    assert rows["plain"]["speedup"] == 1.0
    assert rows["plain"]["bytes_held"] == 0
    latent, hidden = 4 * 16 * 2 * 4 * 4, 4 * 8 * 32
    assert rows["galaxydit output"]["bytes_held"] == 4 * latent + hidden  # two branches, two steps; the proxy
    assert rows["galaxydit residual"]["bytes_held"] == 4 * hidden + hidden
    bare = rows["galaxydit output, no proxy"]["reused_ms"]["median"]
    assert rows["galaxydit output"]["probe_ms"] == rows["galaxydit output"]["reused_ms"]["median"] - bare


@pytest.mark.parametrize("method", INSTALLED)
def test_a_method_runs_its_own_decisions_along_the_plan(method: str) -> None:
    """Blocks are counted step by step, with long stretches of reuse; a wrong decision raises."""
    forced = ForcedSteps(50, (0, 1, 6, 7, 12))
    trajectory = timed(method, forced, build_transformer(SMALL, CPU, torch.float32))
    full, reused = trajectory.count_blocks(14)
    assert full == 2 * SMALL.blocks
    assert reused == REUSED_BLOCKS[method]
    assert trajectory.count_blocks(14) == (full, reused), "the trajectory before must leave nothing behind"


def timed(method: str, forced: ForcedSteps, transformer: Any) -> TimedTrajectory:
    inputs = build_inputs(SMALL, VideoSize(32, 32, 5), CPU, torch.float32)
    return TimedTrajectory(method, forced, transformer, inputs)


def test_decisions_other_than_forced_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    transformer = build_transformer(SMALL, CPU, torch.float32)
    monkeypatch.setattr("galaxydit.eval.latency.timed_methods.NO_CHANGE", 0.0)
    trajectory = timed("FirstBlockCache", evenly_forced(50, 0.5), transformer)
    trajectory.count_blocks(4)
    monkeypatch.setattr("galaxydit.eval.latency.timed_methods.NO_CHANGE", 1e9)
    trajectory = timed("FirstBlockCache", evenly_forced(50, 0.5), transformer)
    with pytest.raises(RuntimeError, match="not as forced"):
        trajectory.count_blocks(4)


def test_the_attention_backend_is_that_of_the_settings(tmp_path: Path) -> None:
    run = LatencyRun(replace(QUICK, methods=["plain"], attention="_native_math"))
    with attention_backend(AttentionBackendName.NATIVE):  # restores that of the process
        data = run.measure(tmp_path / "run.json")
    assert data["settings"]["attention"] == "_native_math"
    assert run.transformer.blocks[0].attn1.processor._attention_backend == "_native_math"


def test_compiled_rows_stand_beside_eager_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("galaxydit.eval.latency.timed_trajectory.BACKEND", "eager")
    settings = replace(QUICK, mode="both", methods=["plain", "galaxydit output"])
    data = LatencyRun(settings).measure(tmp_path / "run.json")
    assert [(row["method"], row["compiled"]) for row in data["rows"]] == [
        ("plain", False),
        ("plain", True),
        ("galaxydit output", False),
        ("galaxydit output", True),
    ]
    assert data["rows"][1]["speedup"] == 1.0
    assert "| galaxydit output, compiled |" in markdown(data)


def test_a_run_that_is_stopped_keeps_what_it_has(tmp_path: Path) -> None:
    def stop_after_two(done: int, turns: int) -> None:
        assert turns == len(INSTALLED)
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        LatencyRun(QUICK).measure(tmp_path / "run.json", stop_after_two)
    data = load(tmp_path / "run.json")
    assert [row["method"] for row in data["rows"]] == ["plain", "galaxydit output"]
    assert not data["finished"]
    assert "ended early" in markdown(data)


def test_a_method_that_fails_gets_a_note_and_the_others_their_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise torch.OutOfMemoryError("tried to allocate 2 GiB")

    monkeypatch.setitem(METHODS, "galaxydit output", fail)
    settings = replace(QUICK, methods=["galaxydit output", "plain"])
    data = LatencyRun(settings).measure(tmp_path / "run.json")
    own, plain = data["rows"]
    assert (own["full_ms"], own["speedup"]) == (None, None)
    assert plain["speedup"] == 1.0
    assert "galaxydit output failed: OutOfMemoryError: tried to allocate 2 GiB" in markdown(data)


def test_a_method_that_fails_on_the_way_holds_nothing_afterwards() -> None:
    trajectory = timed("galaxydit residual", evenly_forced(50, 0.5), build_transformer(SMALL, CPU, torch.float32))
    calls = itertools.count()

    def fail(*_: Any) -> None:
        if next(calls) == 8:
            raise torch.OutOfMemoryError("tried to allocate 2 GiB")

    hook = trajectory.transformer.blocks[-1].register_forward_pre_hook(fail)
    with pytest.raises(torch.OutOfMemoryError):
        trajectory.run(20)
    hook.remove()
    assert not trajectory.transformer._diffusers_hook.hooks["galaxydit"].session.current.histories


def test_the_command_writes_json_and_shows_it_again_as_markdown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "deep" / "run.json"
    options = ["--size", "32x32x5", "--steps", "12", "--repeats", "1", "--device", "cpu"]
    chosen = ["--method", "plain", "--method", "galaxydit output"]
    assert exit_code("latency", *options, *chosen, "--out", str(out)) == 0
    assert str(out) in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["latency", "--table", str(out)])
    lines = capsys.readouterr().out.splitlines()
    assert "8 tokens" in lines[0]
    assert lines[-2].startswith("| plain | ")
    assert lines[-1].startswith("| galaxydit output | ")


def test_true_sizes_have_the_published_token_counts() -> None:
    assert parse_size("480p").tokens == 32_760
    assert parse_size("720p").tokens == 75_600
    assert parse_size("480p") == VideoSize(832, 480, 81)


@pytest.mark.parametrize(("name", "billions"), [("1.3B", 1.42), ("14B", 14.3)])
def test_presets_are_the_published_models(name: str, billions: float) -> None:
    preset = PRESETS[name]
    model = build_transformer(preset, torch.device("meta"), torch.bfloat16)
    assert sum(parameter.numel() for parameter in model.parameters()) / 1e9 == pytest.approx(billions, rel=0.01)
    assert model.blocks[0].attn1.to_q.weight.dtype == torch.bfloat16
    assert model.blocks[0].scale_shift_table.dtype == torch.float32


@pytest.mark.parametrize("text", ["", "480", "832x480", "832x480x80", "830x480x81", "0x16x1"])
def test_bad_sizes_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"size=.*pass for example 832x480x81"):
        parse_size(text)


@pytest.mark.parametrize("steps", [10, 30, 50])
@pytest.mark.parametrize("fraction", [0.34, 0.5, 0.66, 1.0])
def test_a_plan_has_the_fraction_asked_for(steps: int, fraction: float) -> None:
    forced = evenly_forced(steps, fraction)
    assert len(forced.full) == round(steps * fraction)
    assert (forced.full[:2], forced.full[-1]) == ((0, 1), steps - 1)
    assert (2 in forced.full) == (fraction == 1.0)
    gaps = [after - before for before, after in pairwise(forced.full[1:])]
    assert max(gaps) - min(gaps) <= 1


def test_a_fraction_of_less_than_three_steps_is_refused_with_the_range() -> None:
    with pytest.raises(ValueError, match=r"fraction=0.01 is not allowed: expected a number from 0.06 to 1 at 50 steps"):
        evenly_forced(50, 0.01)
    with pytest.raises(ValueError, match=r"fraction=0.5 is not allowed.*; take a larger fraction or more steps"):
        evenly_forced(4, 0.5)


def test_rows_follow_from_the_samples() -> None:
    samples = [
        LatencySamples("plain", False, full_ms=[100.0, 102.0, 98.0], whole_seconds=[1.0], blocks=80),
        LatencySamples("fast", False, full_ms=[110.0], reused_ms=[12.0, 8.0], whole_seconds=[0.4, 0.6, 0.5], blocks=38),
        LatencySamples("fast, no proxy", False, full_ms=[105.0], reused_ms=[2.0], whole_seconds=[0.25], blocks=32),
        LatencySamples("fast", True, full_ms=[50.0], whole_seconds=[0.2], blocks=38),
    ]
    plain, fast, bare, compiled = rows_from(samples)
    assert (plain["denoise_seconds"], plain["speedup"], plain["compute_fraction"]) == (1.0, 1.0, 1.0)
    assert (fast["denoise_seconds"], fast["speedup"]) == (0.5, 2.0)
    assert (fast["probe_ms"], bare["probe_ms"]) == (8.0, None)
    assert fast["compute_fraction"] == pytest.approx(38 / 80)
    assert fast["efficiency"] == pytest.approx(2.0 * 38 / 80)
    assert (compiled["denoise_seconds"], compiled["speedup"]) == (0.2, None), "nothing to compare with"


def test_a_spread_is_median_and_quartiles() -> None:
    assert spread_of([1.0, 2.0, 3.0, 4.0, 5.0]) == {"median": 3.0, "low": 2.0, "high": 4.0, "count": 5}
    assert spread_of([]) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": "2B"}, "model='2B' is not allowed: expected one of '1.3B'"),
        ({"methods": ["magic"]}, "method='magic' is not allowed: expected one of 'plain'"),
        ({"steps": 3}, "steps=3 is not allowed: expected a whole number of at least 9"),
        ({"repeats": 0}, "repeats=0"),
        ({"device": "gpu"}, "device='gpu'"),
    ],
)
def test_bad_settings_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(QUICK, **change)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    for text in ("no json", "[]", '{"kind": "other"}'):
        (tmp_path / "x.json").write_text(text)
        with pytest.raises(ValueError, match="galaxydit latency"):
            load(tmp_path / "x.json")


def test_synchronisations_are_unknown_on_a_cpu() -> None:
    assert timed("plain", evenly_forced(50, 0.5), build_transformer(SMALL, CPU, torch.float32)).count_syncs(3) is None


def test_pytorchs_notice_of_its_debug_mode_is_no_synchronization(monkeypatch: pytest.MonkeyPatch) -> None:
    trajectory = timed("plain", evenly_forced(50, 0.5), build_transformer(SMALL, CPU, torch.float32))
    notice = "Synchronization debug mode is a prototype feature and does not yet detect all synchronizing operations"
    monkeypatch.setattr(trajectory, "device", torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", lambda mode: warnings.warn(notice, stacklevel=1))
    warn = partial(warnings.warn, "called a synchronizing CUDA operation", stacklevel=1)
    trajectory.transformer.proj_out.register_forward_pre_hook(lambda *_: warn())
    assert trajectory.count_syncs(3) == 2.0, "once a branch"


def test_the_committed_results_are_in_the_table() -> None:
    page = [_cells(line) for line in (RESULTS / "gpu" / "table.md").read_text(encoding="utf-8").splitlines()]
    for path in RESULTS.rglob("latency-*.json"):
        rows = markdown(load(path)).splitlines()[4:]
        assert rows
        assert not [row for row in rows if _cells(row) not in page], path


def _cells(row: str) -> list[str]:
    """The cells of a Markdown row that are not empty, as tables of several runs have columns that one run lacks."""
    return [cell.strip() for cell in row.split("|") if cell.strip()]


def test_the_joules_of_a_trajectory_are_those_of_its_blocks(
    tmp_path: Path, simulated_gpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = TimedTrajectory.__init__

    def connected(trajectory: TimedTrajectory, *args: Any, **kwargs: Any) -> None:
        built(trajectory, *args, **kwargs)
        for block in trajectory.transformer.blocks:
            block.ffn.register_forward_hook(lambda *_: simulated_gpu.draw(1))

    monkeypatch.setattr(TimedTrajectory, "__init__", connected)
    methods = ["plain", "galaxydit output, no proxy"]
    data = LatencyRun(replace(QUICK, methods=methods)).measure(tmp_path / "run.json")
    plain, half = data["rows"]
    assert plain["energy_joules"] == 12 * 2 * SMALL.blocks
    assert half["energy_joules"] == plain["energy_joules"] / 2
    assert plain["avg_power_watts"] == pytest.approx(plain["energy_joules"] / plain["denoise_seconds"])
    assert "| kJ |" in markdown(data)
