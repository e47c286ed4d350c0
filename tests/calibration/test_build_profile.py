import numpy as np
import pytest

from galaxydit.calibration.build_profile import largest_expected_error, plan_target
from galaxydit.calibration.fit import fit_error_map
from galaxydit.calibration.recording import Recording, mean_distances
from galaxydit.calibration.search import Planner
from galaxydit.policies.error_map import CumulativeDistance
from galaxydit.profiles.schema import ErrorPropagation, Profile


@pytest.fixture
def planner(recordings: list[Recording]) -> Planner:
    return Planner(recordings, ErrorPropagation())


def test_every_target_has_the_full_steps_that_its_speedup_leaves(drafted: Profile) -> None:
    steps = drafted.conditions.steps
    for target in drafted.recipe.targets:
        assert len(target.sigmas) == round(steps / target.speedup)


def test_a_speedup_that_the_probe_alone_exceeds_is_planned_without_it(drafted: Profile, planner: Planner) -> None:
    assert drafted.recipe.reused_cost == pytest.approx(1 / 6, abs=1e-6)
    assert len(plan_target(planner, 6.5).sigmas) == 6


def test_a_speedup_that_no_schedule_reaches_has_no_target(planner: Planner) -> None:
    assert plan_target(planner, 30.0) is None


def test_the_expected_error_of_a_target_grows_with_its_speedup(planner: Planner, recordings: list[Recording]) -> None:
    error_map, _ = fit_error_map(recordings, "block_residual", 1)
    distances = np.cumsum(mean_distances(recordings, "block_residual"))
    cumulative = CumulativeDistance(recordings[0].sigmas, tuple(distances.tolist()))
    errors = [largest_expected_error(plan_target(planner, s), error_map, cumulative) for s in (1.0, 1.5, 3.0, 6.0)]
    assert errors[0] == 0.0
    assert errors == sorted(errors)
