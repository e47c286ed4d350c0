from collections.abc import Callable

import numpy as np
import pytest

from galaxydit.calibration.build_profile import largest_expected_error, plan_targets
from galaxydit.calibration.fit import fit_error_map
from galaxydit.calibration.recording import Recording
from galaxydit.calibration.schedule_error import ScheduleError
from galaxydit.calibration.search import best_schedules
from galaxydit.policies.error_map import CumulativeDistance
from galaxydit.profiles.schema import ErrorPropagation, Profile, Target


@pytest.fixture
def planned(recordings: list[Recording]) -> Callable[[float], tuple[Target, ...]]:
    """The target for a speedup, if there is one."""
    model = ScheduleError(recordings)
    schedules = best_schedules(model, len(model.sigmas), ErrorPropagation())
    return lambda speedup: plan_targets(schedules, model.sigmas, [speedup])


def test_every_target_has_the_full_steps_that_its_speedup_leaves(drafted: Profile) -> None:
    steps = drafted.conditions.steps
    for target in drafted.recipe.targets:
        assert len(target.sigmas) == round(steps / target.speedup)


def test_a_speedup_that_no_schedule_reaches_has_no_target(planned: Callable) -> None:
    assert planned(30.0) == ()


def test_the_expected_error_of_a_target_grows_with_its_speedup(planned: Callable, recordings: list[Recording]) -> None:
    error_map, _ = fit_error_map(recordings, "block_residual", 1)
    distances = np.cumsum(np.mean([recording.distances["block_residual"] for recording in recordings], axis=0))
    cumulative = CumulativeDistance(recordings[0].sigmas, tuple(distances.tolist()))
    targets = [target for speedup in (1.0, 1.5, 3.0, 6.0) for target in planned(speedup)]
    errors = [largest_expected_error(target, error_map, cumulative) for target in targets]
    assert len(errors) == 4
    assert errors[0] == 0.0
    assert errors == sorted(errors)
