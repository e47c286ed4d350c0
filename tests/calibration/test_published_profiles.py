"""The planner against published measurements of the real weights, and the profiles that it plans from them."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

from galaxydit.calibration.published import load_published
from galaxydit.calibration.published_profiles import (
    curvature_at,
    published_profile,
    published_propagation,
    published_recording,
    wan_sigmas,
)
from galaxydit.calibration.schedule_error import ScheduleError
from galaxydit.calibration.search import best_schedules, cheapest_schedules
from galaxydit.config import GalaxyDiTConfig
from galaxydit.policies.policy import Controller, Observation
from galaxydit.profiles.registry import FOLDER, load_profile
from galaxydit.profiles.resolve import schedule_for

PUBLISHED = load_published()
PROPAGATION = published_propagation(PUBLISHED)
RESIDUAL_LISTS = [row for row in PUBLISHED.step_lists if row.method is None and row.plain_steps is None]


def error_of(full: Sequence[int], flow_shift: float, steps: int = 50) -> float:
    """The planner's error of repetition after the steps `full`, also after the last of them."""
    model = ScheduleError([published_recording(PUBLISHED, wan_sigmas(flow_shift, steps))])
    return float(model.final_error((*full, steps), PROPAGATION, order=0, coherence=0.0)[0])


def starter_steps(count: int, flow_shift: float, steps: int = 50) -> tuple[int, ...]:
    """The `count` steps that the shipped profile of the 1.3B model computes, as its policy decides them."""
    profile = load_profile("wan2.1-t2v-1.3b")
    target = profile.target_for(steps / count)
    schedule = schedule_for(profile, target, steps / count)
    config = GalaxyDiTConfig(schedule, warmup=target.warmup, max_consecutive=target.max_consecutive)
    controller = Controller(config.policy, config.limits)
    sigmas = wan_sigmas(flow_shift, steps)
    return tuple(
        step for step in range(steps) if not controller.decide(Observation(step, steps, None, step > 0, sigmas)).reuse
    )


@pytest.mark.parametrize("name", ["t2v-1.3b", "t2v-14b", "i2v-14b"])
def test_the_shipped_profiles_are_the_published_ones(name: str, tmp_path: Path) -> None:
    published_profile(name).save(tmp_path / "written.json")
    assert (tmp_path / "written.json").read_bytes() == (FOLDER / f"wan2.1-{name}.json").read_bytes()


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


@pytest.mark.parametrize("flow_shift", [3, 5, 8])
def test_starters_have_less_expected_error_than_published_lists_of_their_size(flow_shift: float) -> None:
    for listed in (PUBLISHED.data["released_list"]["steps"], RESIDUAL_LISTS[0].steps):
        ratio = error_of(listed, flow_shift) / error_of(starter_steps(len(listed), flow_shift), flow_shift)
        assert 10 * np.log10(ratio) > 1.5


@pytest.mark.parametrize("steps", [30, 40, 50])
@pytest.mark.parametrize("flow_shift", [3, 5, 8])
def test_starters_at_half_the_steps_are_near_the_optimum_of_other_settings(flow_shift: float, steps: int) -> None:
    full = starter_steps(steps // 2, flow_shift, steps)
    model = ScheduleError([published_recording(PUBLISHED, wan_sigmas(flow_shift, steps))])
    _, least = best_schedules(model, steps // 2, PROPAGATION, warmup=3, order=0)[steps // 2]
    assert len(full) == steps // 2
    assert full[:3] == (0, 1, 2)
    assert 10 * np.log10(error_of(full, flow_shift, steps) / least) < 1.1


def test_published_optimal_schedules_are_near_the_optimum_of_the_planners_own_error() -> None:
    table = PUBLISHED.data["optimal_schedules"]
    model = ScheduleError([published_recording(PUBLISHED, wan_sigmas(table["flow_shift"], 50))])
    found = best_schedules(model, 21, PROPAGATION, warmup=3, order=0, longest_gap=table["longest_gap"])
    for row in table["rows"]:
        schedule, least = found[row["computed_steps"]]
        assert 10 * np.log10(error_of(row["steps"], table["flow_shift"]) / least) < 2.4
        assert len(set(schedule) ^ set(row["steps"])) <= 20
