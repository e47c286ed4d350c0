from dataclasses import replace

import numpy as np
import pytest

from galaxydit import load_profile
from galaxydit.calibration.build_profile import drop_worse_coefficients, largest_expected_error, plan_target
from galaxydit.calibration.fit import fit_error_map
from galaxydit.calibration.recording import Recording, mean_distances
from galaxydit.calibration.search import Planner
from galaxydit.policies.error_map import CumulativeDistance
from galaxydit.profiles.schema import ErrorPropagation, Profile, Target, Verification


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


def test_order_1_replaces_coefficients_where_it_was_verified_to_be_better() -> None:
    shipped = load_profile("wan-tiny")
    fitted = tuple((0.9, 0.1) for _ in range(3))
    sigmas = (0.9, 0.5, 0.1)
    targets = tuple(Target(speedup, 0.0, 4, sigmas, fitted) for speedup in (1.5, 2.0, 2.2, 3.0))
    verifications = (
        Verification(1.5, psnr_db=40.0, fixed_psnr_db=39.0),
        Verification(2.0, psnr_db=35.0, fixed_psnr_db=36.0),
        Verification(3.0, psnr_db=30.0, fixed_psnr_db=30.0),
    )
    profile = replace(
        shipped,
        recipe=replace(shipped.recipe, targets=targets),
        evidence=replace(shipped.evidence, verifications=verifications),
    )
    dropped = drop_worse_coefficients(profile)
    assert [target.coefficients for target in dropped.recipe.targets] == [fitted, (), (), fitted]
    assert [found.psnr_db for found in dropped.evidence.verifications] == [40.0, 36.0, 30.0]
