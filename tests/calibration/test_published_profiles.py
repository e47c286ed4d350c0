"""The planners against published measurements of the real weights, and the profile that they plan from them."""

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import UniPCMultistepScheduler
from scipy.stats import spearmanr

from galaxydit.calibration.published import load_published
from galaxydit.calibration.published_plan import expected_level, expected_levels, improved, neighbours
from galaxydit.calibration.published_profiles import (
    FORCED,
    curvature_at,
    linear_plans,
    published_profile,
    published_propagation,
    published_recording,
    wan_sigmas,
)
from galaxydit.calibration.schedule_error import ScheduleError
from galaxydit.calibration.search import best_schedules, cheapest_schedules
from galaxydit.calibration.surrogate.surrogate import Rule
from galaxydit.config import GalaxyDiTConfig
from galaxydit.policies.policy import Controller, Observation
from galaxydit.policies.schedule import place_full_steps
from galaxydit.profiles.conditions import notes_and_warnings
from galaxydit.profiles.registry import FOLDER, load_profile
from galaxydit.profiles.resolve import schedule_for
from galaxydit.runtime.source import Source

PUBLISHED = load_published()
PROPAGATION = published_propagation(PUBLISHED)
RESIDUAL_LISTS = [row for row in PUBLISHED.step_lists if row.method is None and row.plain_steps is None]


BEFORE = {
    25: (0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 17, 20, 23, 26, 29, 32, 35, 38, 41, 43, 45, 47, 48, 49),
    20: (0, 1, 2, 3, 4, 6, 8, 10, 13, 16, 20, 24, 28, 32, 36, 40, 43, 46, 48, 49),
}
"""Full steps at 2x and 2.5x that the linear planner alone had chosen, run at order 0 with the correction."""


def error_of(full: Sequence[int], flow_shift: float, steps: int = 50) -> float:
    """The linear planner's error of repetition after the steps `full`, also after the last of them."""
    model = ScheduleError([published_recording(PUBLISHED, flow_shift, steps)], corrects=False)
    return float(model.final_error((*full, steps), PROPAGATION, order=0, coherence=0.0)[0])


def shipped_steps(count: int, flow_shift: float, steps: int = 50) -> tuple[int, ...]:
    """The `count` steps that the shipped profile computes, as its policy decides them."""
    profile = load_profile("wan2.1-t2v-1.3b")
    target = profile.target_for(steps / count)
    schedule = schedule_for(profile, target, steps / count)
    config = GalaxyDiTConfig(schedule, warmup=target.warmup, max_consecutive=target.max_consecutive)
    controller = Controller(config.policy, config.limits)
    sigmas = wan_sigmas(flow_shift, steps)
    return tuple(
        step for step in range(steps) if not controller.decide(Observation(step, steps, None, step > 0, sigmas)).reuse
    )


def test_the_shipped_profile_is_the_published_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    targets = load_profile("wan2.1-t2v-1.3b").recipe.targets  # planned in minutes; the next tests check some
    monkeypatch.setattr("galaxydit.calibration.published_profiles.published_targets", lambda: targets)
    published_profile().save(tmp_path / "written.json")
    written, shipped = (
        json.loads(path.read_text()) for path in (tmp_path / "written.json", FOLDER / "wan2.1-t2v-1.3b.json")
    )
    assert_nearly_equal(written, shipped)


def assert_nearly_equal(one: Any, other: Any, key: str = "") -> None:
    """The same but for the last digits of numbers, which processors compute differently, and the hash of these."""
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert list(one) == list(other)
        for name in one:
            assert_nearly_equal(one[name], other[name], name)
    elif isinstance(one, list):
        assert len(one) == len(other)
        for first, second in zip(one, other, strict=True):
            assert_nearly_equal(first, second, key)
    elif isinstance(one, float):
        assert one == pytest.approx(other, rel=1e-4, abs=1e-6)
    elif key != "digest":
        assert one == other


def test_hill_climbing_reaches_no_more_than_the_shipped_schedule() -> None:
    full, level = improved(linear_plans(12)[12], FORCED)
    shipped = shipped_steps(12, 5)
    assert len(shipped) == len(full) == 12
    assert level - 0.05 < expected_level(shipped)
    assert expected_level(linear_plans(12)[12]) < level - 1


def test_no_neighbour_of_a_shipped_schedule_is_better() -> None:
    shipped = shipped_steps(20, 5)
    level = expected_level(shipped)
    for step in shipped[FORCED:-1:4]:
        assert all(expected_level(one) < level + 0.05 for one in neighbours(shipped, step, FORCED))


@pytest.mark.parametrize("steps", [30, 40, 50])
@pytest.mark.parametrize("planned_count", BEFORE)
def test_surrogates_expect_more_of_the_shipped_profile_than_of_repetition(planned_count: int, steps: int) -> None:
    sigmas, count = wan_sigmas(5, 50), planned_count * steps // 50
    before = tuple(sigmas[step] for step in BEFORE[planned_count])
    places = place_full_steps(before, count, wan_sigmas(5, steps), 0, sigmas)
    gains = np.subtract(
        expected_levels(shipped_steps(count, 5, steps), steps=steps),
        expected_levels(places, Rule(order=0, correction=1.0), steps),
    )
    assert shipped_steps(count, 3, steps) == shipped_steps(count, 8, steps)
    assert len(gains) == 6
    assert gains.mean() > 3
    assert gains.min() > 0


@pytest.mark.parametrize("flow_shift", [5, 8])
def test_the_planner_ranks_published_step_lists_of_one_protocol_as_their_psnrs(flow_shift: float) -> None:
    rows = [row for row in RESIDUAL_LISTS if row.flow_shift == flow_shift]
    errors = [error_of(row.steps, flow_shift) for row in rows]
    assert spearmanr([-error for error in errors], [row.psnr for row in rows]).statistic == pytest.approx(1)


def test_across_protocols_the_planner_ranks_the_lists_nearly_as_their_psnrs() -> None:
    errors = [error_of(row.steps, row.flow_shift) for row in RESIDUAL_LISTS]
    assert spearmanr([-error for error in errors], [row.psnr for row in RESIDUAL_LISTS]).statistic > 0.8


def test_the_search_finds_the_published_schedules_for_their_cost() -> None:
    table = PUBLISHED.data["optimal_schedules"]
    sigmas = np.array(wan_sigmas(table["flow_shift"], 50))
    curvature, longest = curvature_at(PUBLISHED, sigmas), table["longest_gap"]
    costs = np.zeros((50, longest + 1, longest + 1))
    for at in range(50):
        for gap in range(1, min(longest, 49 - at) + 1):
            between = slice(at + 1, at + gap)
            costs[at, :, gap] = np.sum(curvature[between] * (sigmas[at] - sigmas[between]))
    found = cheapest_schedules(costs, 21, warmup=3)
    for row in table["rows"]:
        schedule, cost = found[row["computed_steps"]]
        assert len(set(schedule) ^ set(row["steps"])) <= 6
        assert cost == pytest.approx(row["cost"], rel=0.02)


def test_magnitude_ratios_do_not_determine_the_curvature() -> None:
    table = PUBLISHED.data["residual"]
    sigmas = np.array(wan_sigmas(table["flow_shift"], 50))
    change = (1 - np.array(table["conditional"])[1:]) / -np.diff(sigmas)
    assert spearmanr(change[5:], curvature_at(PUBLISHED, sigmas[:-1])[5:]).statistic < 0.5


def test_surrogates_expect_more_of_the_shipped_schedules_than_of_published_lists_at_the_same_rule() -> None:
    for listed in (PUBLISHED.data["released_list"]["steps"], RESIDUAL_LISTS[0].steps):
        assert expected_level(shipped_steps(len(listed), 5)) > expected_level(tuple(listed)) + 0.5


@pytest.mark.parametrize("flow_shift", [3, 5, 8])
@pytest.mark.parametrize(("steps", "guidance"), [(30, 5.0), (40, 5.0), (50, 6.0)])
def test_the_recommended_settings_give_no_warning(flow_shift: float, steps: int, guidance: float) -> None:
    assert remarks(flow_shift, steps, guidance) == []


@pytest.mark.parametrize(
    ("flow_shift", "steps", "guidance", "remark"),
    [
        (16, 50, 5.0, "shift 3 to 8"),
        (1, 50, 5.0, "shift 3 to 8"),
        (5, 20, 5.0, "30 to 50 steps"),
        (5, 50, 3.0, "planned for 5 to 6"),
    ],
)
def test_other_settings_do(flow_shift: float, steps: int, guidance: float, remark: str) -> None:
    (found,) = remarks(flow_shift, steps, guidance)
    assert remark in found


def remarks(flow_shift: float, steps: int, guidance: float) -> list[str]:
    """What the report of a generation at these settings says about the shipped profile."""
    scheduler = UniPCMultistepScheduler(use_flow_sigmas=True, flow_shift=flow_shift, prediction_type="flow_prediction")
    scheduler.set_timesteps(steps)
    source = Source(SimpleNamespace(_guidance_scale=guidance, scheduler=scheduler), torch.nn.Identity())
    profile = load_profile("wan2.1-t2v-1.3b")
    notes, warned = notes_and_warnings(profile, False, steps, tuple(scheduler.sigmas[:-1].tolist()), source, ())
    return [*notes, *warned]


def test_published_optimal_schedules_are_near_the_optimum_of_the_planners_own_error() -> None:
    table = PUBLISHED.data["optimal_schedules"]
    model = ScheduleError([published_recording(PUBLISHED, table["flow_shift"], 50)], corrects=False)
    found = best_schedules(model, 21, PROPAGATION, warmup=3, order=0, longest_gap=table["longest_gap"])
    for row in table["rows"]:
        schedule, least = found[row["computed_steps"]]
        assert 10 * np.log10(error_of(row["steps"], table["flow_shift"]) / least) < 2.4
        assert len(set(schedule) ^ set(row["steps"])) <= 20
