"""Measurements beside published numbers, on a tiny model with random weights and on made-up trajectories."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from diffusers import WanPipeline

from galaxydit.calibration.published import load_published
from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.compare.methods.optimised_noise_levels import at_noise_levels
from galaxydit.eval.compare.trajectory import Trajectory, record
from galaxydit.eval.realism.curvature import change_per_step, error_gain
from galaxydit.eval.realism.measurements import Realism, goals
from galaxydit.eval.realism.step_lists import Cases, PublishedRow, References, compared, measure_row, published_method
from galaxydit.pipelines.generate import generate, generate_batch

STEPS = 12


def trajectory(latents: torch.Tensor, velocity: torch.Tensor, sigmas: np.ndarray) -> Trajectory:
    """A trajectory of one video; the last latent is the final one."""
    *inputs, final = latents[:, None]
    return Trajectory(sigmas=sigmas, latents=inputs, outputs={"cond": [*velocity[:, None]]}, final=final)


@pytest.fixture
def settings(tiny_settings):
    return replace(tiny_settings, steps=STEPS)


def test_a_straight_path_has_no_curvature():
    sigmas = np.linspace(1, 0, 11)
    direction = torch.tensor([3.0, 4.0], dtype=torch.float64)
    latents = torch.stack([sigma * direction for sigma in sigmas])
    straight = trajectory(latents, direction.expand(10, 2), sigmas[:-1])
    np.testing.assert_allclose(change_per_step(straight), 0, atol=1e-7)


def test_a_circle_has_the_curvature_of_its_radius():
    """z = (cos, sin): the second derivative has norm 1 and no tangential part, and the chord is known."""
    angles = np.linspace(1, 0, 101)
    latents = torch.tensor(np.stack([np.cos(angles), np.sin(angles)], 1))
    velocity = torch.tensor(np.stack([-np.sin(angles), np.cos(angles)], 1)[:-1])
    chord = 2 * np.sin(0.5)
    circle = trajectory(latents, velocity, angles[:-1])
    np.testing.assert_allclose(change_per_step(circle)[5:-5], 0.01 / chord, rtol=1e-3)


def test_the_gain_is_the_final_deviation_by_the_local_error():
    sigmas = np.array([1.0, 0.5])
    plain = trajectory(torch.zeros(3, 2), torch.zeros(2, 2), sigmas)
    changed = trajectory(torch.tensor([[0.0, 0], [0, 0], [6, 8]]), torch.tensor([[0.0, 2], [9, 9]]), sigmas)
    assert error_gain(plain, changed, step=0) == pytest.approx(5.0)


def test_published_rows_have_the_published_numbers_of_steps():
    rows = load_published().step_lists
    assert [len(row.steps) for row in rows] == [24, 19, 19, 14, 10, 18, 0, 18, 18]
    assert all(row.steps == tuple(sorted(set(row.steps))) for row in rows)
    assert load_published().gain(0) / load_published().gain(40) == pytest.approx(5.9, abs=0.1)


@pytest.mark.parametrize("shift", [3, 5])
def test_every_published_method_can_be_run_at_a_published_setting(shift):
    published = load_published()
    names = {row.name for row in published.step_lists if row.flow_shift == shift}
    table = published.data[f"methods_shift_{shift}"]
    assert table["flow_shift"] == shift
    for row in table["rows"]:
        assert row.get("row") in names or published_method(row["method"]).settings(50)[row.get("setting", 0)]


@pytest.mark.parametrize("flow_shift", [None, 3.0])
def test_a_batch_holds_the_videos_of_single_calls(tiny_wan_pipeline, settings, flow_shift):
    settings = replace(settings, flow_shift=flow_shift)
    batch = generate_batch(tiny_wan_pipeline, ["a red ball", "a blue ball"], [3, 4], settings)
    single = generate(tiny_wan_pipeline, "a blue ball", settings, seed=4).frames
    np.testing.assert_allclose(batch[1], single, atol=2e-3)


def test_all_noise_levels_chosen_give_the_plain_video(tiny_wan_pipeline, settings):
    plain = record(tiny_wan_pipeline, ["a red ball"], [0], settings)
    with at_noise_levels(tiny_wan_pipeline, STEPS, range(STEPS)):
        again = generate_batch(tiny_wan_pipeline, ["a red ball"], [0], settings)
    np.testing.assert_allclose(again, plain.frames, atol=2e-3)


def test_a_list_of_all_steps_is_the_plain_video_and_a_shorter_one_is_not(tiny_wan_pipeline, settings):
    references = References(tiny_wan_pipeline, Cases(("a red ball",), (0,), 1), settings, 1.0)
    row = load_published().step_lists[2]
    assert measure_row(references, replace(row, steps=tuple(range(STEPS)))).psnr == (120.0,)
    assert measure_row(references, replace(row, steps=tuple(range(0, STEPS, 3)))).psnr[0] < 119


def test_ranks_are_compared_and_not_values():
    rows = [PublishedRow("a", 10.0, (30.0,)), PublishedRow("b", 20.0, (30.5,)), PublishedRow("c", 15.0, (30.2,))]
    assert compared(rows)["spearman"] == 1.0


def test_a_model_with_two_transformers_is_refused(tiny_wan_pipeline, tiny_transformer, settings):
    both = {"transformer_2": tiny_transformer(3), "boundary_ratio": 0.9}
    pipe, cases = WanPipeline(**tiny_wan_pipeline.components | both), Cases(("a red ball",), (0,), 1)
    with pytest.raises(GalaxyDiTError, match="expected a pipeline with one transformer, not 2"):
        Realism(pipe, load_published(), cases, cases, settings, 1.0)


def test_a_finished_part_is_kept_also_while_other_conditions_are_measured(
    tiny_wan_pipeline, settings, tmp_path, caplog
):
    cases = Cases(("a red ball",), (0,), 1)

    def measure(factor: float) -> dict:
        measured = Realism(tiny_wan_pipeline, load_published(), cases, cases, settings, factor)
        measured.residual = lambda: {"mean_absolute_difference": factor}
        return measured.run(tmp_path / "realism.json", ["residual"])

    assert measure(0.01)["goals"][0]["holds"] is True
    stored = json.loads((tmp_path / "realism.json").read_text())
    stored["residual"]["mean_absolute_difference"] = 0.5
    (tmp_path / "realism.json").write_text(json.dumps(stored))
    assert measure(0.01)["residual"]["mean_absolute_difference"] == 0.5
    assert not caplog.messages
    assert measure(0.02)["residual"]["mean_absolute_difference"] == 0.02
    (kept,) = tmp_path.glob("realism-*.json")
    assert json.loads(kept.read_text())["residual"]["mean_absolute_difference"] == 0.5
    assert caplog.messages == [
        f"{tmp_path / 'realism.json'} was measured under other conditions; it is kept as {kept.name}"
    ]
    assert measure(0.01)["residual"]["mean_absolute_difference"] == 0.5
    assert json.loads((tmp_path / "realism.json").read_text())["conditions"]["shift_factor"] == 0.01
    assert len(list(tmp_path.iterdir())) == 2


def test_a_kill_while_a_part_is_written_loses_no_other_part(tiny_wan_pipeline, settings, tmp_path, monkeypatch):
    cases, out = Cases(("a red ball",), (0,), 1), tmp_path / "realism.json"
    measured = Realism(tiny_wan_pipeline, load_published(), cases, cases, settings, 1.0)
    measured.residual = measured.curvature = lambda: {"mean_absolute_difference": 0.5, "within_factor_2": 46}
    measured.run(out, ["residual"])
    write = Path.write_text

    def write_half(path: Path, text: str, **options: str) -> None:
        write(path, text[: len(text) // 2], **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_text", write_half)
    with pytest.raises(KeyboardInterrupt):
        measured.run(out, ["residual", "curvature"])
    assert "residual" in json.loads(out.read_text())
    assert [path.name for path in tmp_path.iterdir()] == [out.name]


@pytest.mark.parametrize("content", ["", "{", "[]", "null"])
def test_a_damaged_file_is_measured_anew(content, tiny_wan_pipeline, settings, tmp_path):
    (tmp_path / "realism.json").write_text(content)
    cases = Cases(("a red ball",), (0,), 1)
    measured = Realism(tiny_wan_pipeline, load_published(), cases, cases, settings, 1.0)
    measured.residual = lambda: {"mean_absolute_difference": 0.5}
    assert measured.run(tmp_path / "realism.json", ["residual"])["residual"]["mean_absolute_difference"] == 0.5


def test_parts_without_published_numbers_are_measured_too(tiny_wan_pipeline, settings, tmp_path):
    cases = Cases(("a red ball", "a blue square"), (0, 1), 2)
    measured = Realism(tiny_wan_pipeline, load_published(), cases, cases, settings, 1.0)
    found = measured.run(tmp_path / "realism.json", ["proxies", "noise levels"])
    assert {row["proxy"] for row in found["proxies"]["ranking"]} >= {"filtered_latent", "block_residual"}
    assert found["noise levels"]["setting"]["steps"] == STEPS // 2
    assert len(found["noise levels"]["psnr"]) == 2
    assert set(measured.references._known) == {(3, 5)}, "the ranking needs no plain videos"


def test_a_goal_outside_its_range_does_not_hold():
    (goal,) = goals({"propagation": {"first_by_40": 9.0}})
    assert goal["holds"] is False
