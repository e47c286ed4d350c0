from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from diffusers import WanPipeline

from galaxydit.calibration.build_profile import ProfileBuilder, largest_expected_error, plan_targets
from galaxydit.calibration.fit import fit_error_map
from galaxydit.calibration.rank import rank_proxies
from galaxydit.calibration.recording import Recording
from galaxydit.calibration.search import ScheduleError, best_schedules
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.policies.error_map import CumulativeDistance
from galaxydit.profiles.evidence import ErrorPropagation
from galaxydit.profiles.recipe import Target
from galaxydit.profiles.schema import Profile

WHERE = {"latent_shape": (), "device": "cpu", "versions": {}}


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


def test_the_first_two_steps_are_computed_however_little_an_early_error_counts(
    tiny_wan_pipeline: WanPipeline, recordings: list[Recording], settings: GenerationSettings
) -> None:
    late = ErrorPropagation((0.9, 0.2), (0.001, 100.0))
    steps = len(recordings[0].sigmas)
    free = best_schedules(ScheduleError(recordings), steps, late)[round(steps / 5)]
    assert free[1] > 1, "without the rule the second step would be reused"
    build = ProfileBuilder(tiny_wan_pipeline, recordings, rank_proxies(recordings), late, (5.0,))
    profile = build.profile("late", replace(settings, steps=steps), **WHERE)
    (target,) = profile.recipe.targets
    assert target.sigmas[:2] == recordings[0].sigmas[:2]
    assert target.warmup == 2 / steps


def test_schedules_leave_the_rounding_out(
    tiny_wan_pipeline: WanPipeline, recordings: list[Recording], settings: GenerationSettings
) -> None:
    def full_steps(of: list[Recording]) -> list[tuple[float, ...]]:
        build = ProfileBuilder(tiny_wan_pipeline, of, rank_proxies(of), ErrorPropagation(), (2.0, 3.0))
        profile = build.profile("exact", replace(settings, steps=of[0].steps), **WHERE)
        return [target.sigmas for target in profile.recipe.targets]

    rounded = [replace(recording, rounding=2.0) for recording in recordings]
    assert full_steps(rounded) == full_steps(recordings)
    assert full_steps([recording.rounded for recording in rounded]) != full_steps(recordings)


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
