import numpy as np
import pytest

from galaxydit.calibration.build_profile import plan_target
from galaxydit.calibration.fit import fit_error_map
from galaxydit.calibration.recording import Recording, mean_distances
from galaxydit.calibration.search import Planner
from galaxydit.profile import Profile, Target
from galaxydit.propagation import Propagation


def target_for(speedup: float, recordings: list[Recording]) -> Target | None:
    error_map, _ = fit_error_map(recordings, "block_residual", 1)
    cumulative = np.cumsum(mean_distances(recordings, "block_residual"))
    return plan_target(Planner(recordings, Propagation()), speedup, error_map, cumulative)


def test_every_target_has_the_full_steps_that_its_speedup_leaves(drafted: Profile) -> None:
    steps = drafted.conditions.steps
    for target in (*drafted.targets, *drafted.unverified):
        assert len(target.schedule) == round(steps / target.speedup)


def test_a_speedup_that_the_probe_alone_exceeds_is_planned_without_it(
    drafted: Profile, recordings: list[Recording]
) -> None:
    assert drafted.reused_cost == pytest.approx(1 / 6, abs=1e-6)
    target = target_for(6.5, recordings)
    assert len(target.schedule) == 6
    assert target.follow == 0


def test_a_speedup_that_no_schedule_reaches_has_no_target(recordings: list[Recording]) -> None:
    assert target_for(30.0, recordings) is None


def test_the_expected_error_of_a_target_grows_with_its_speedup(recordings: list[Recording]) -> None:
    errors = [target_for(speedup, recordings).expected_error for speedup in (1.0, 1.5, 3.0, 6.0)]
    assert errors[0] == 0.0
    assert errors == sorted(errors)
