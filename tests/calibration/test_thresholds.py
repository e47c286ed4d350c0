from collections.abc import Callable
from dataclasses import replace
from statistics import fmean

import pytest

from galaxydit.calibration.recording import Recording
from galaxydit.calibration.thresholds import (
    deviation_weight,
    follows_schedule,
    mean_distance,
    replay,
    solve_threshold,
)
from galaxydit.policies.policy import Limits
from galaxydit.policies.proxy_threshold import ProxyThreshold, full_speedup
from galaxydit.policies.schedule import Schedule
from galaxydit.profiles.schema import Profile

LIMITS = Limits(warmup=0.05, max_consecutive=None)


def policy_for(recordings: list[Recording], proxy: str, speedup: float) -> ProxyThreshold:
    sigmas = recordings[0].sigmas
    count = round(len(sigmas) / speedup)
    planned = tuple(sigmas[round(place * (len(sigmas) - 1) / (count - 1))] for place in range(count))
    return ProxyThreshold(Schedule(speedup, planned, None, mean_distance(recordings, proxy), planned_sigmas=sigmas))


@pytest.mark.parametrize("speedup", [1.5, 2.0, 3.0])
@pytest.mark.parametrize("share", [0.0, 0.05])
def test_the_solved_threshold_gives_the_speedup_on_the_recordings(
    recordings: list[Recording], speedup: float, share: float
) -> None:
    policy = policy_for(recordings, "block_residual", full_speedup(speedup, share))
    threshold = solve_threshold(recordings, "block_residual", policy, LIMITS, speedup, share)
    solved = replace(policy, threshold=threshold, leeway=None)
    counts = [len(replay(one, "block_residual", solved, LIMITS)) for one in recordings]
    share_of_full_steps = fmean(counts) / recordings[0].steps
    fraction = share_of_full_steps + share * (1 - share_of_full_steps)
    assert fraction == pytest.approx(1 / speedup, rel=0.05)


def test_a_proxy_of_another_scale_gets_the_same_decisions(recording_of: Callable, noisy_proxy: Callable) -> None:
    follows = noisy_proxy(0.2)
    large = [recording_of(index, {"block_residual": follows}) for index in range(6)]
    small = [
        replace(one, distances={"block_residual": tuple(0.01 * value for value in one.distances["block_residual"])})
        for one in large
    ]
    steps = []
    for recordings in (large, small):
        policy = policy_for(recordings, "block_residual", 2.0)
        threshold = solve_threshold(recordings, "block_residual", policy, LIMITS, 2.0, 0.0)
        steps.append(
            [replay(one, "block_residual", replace(policy, threshold=threshold), LIMITS) for one in recordings]
        )
    assert steps[0] == steps[1]


def test_a_second_transformers_first_step_is_computed(recordings: list[Recording]) -> None:
    switched = [replace(one, switch=20) for one in recordings]
    policy = replace(policy_for(switched, "block_residual", 2.0), threshold=1e9, leeway=None)
    assert replay(switched[0], "block_residual", policy, LIMITS) == (0, 1, 20, switched[0].steps - 1)


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("elasticity", [0.5, 1.0])
def test_the_weight_of_deviations_is_the_elasticity_over_the_growth_of_an_intervals_error(
    recording_of: Callable, order: int, elasticity: float
) -> None:
    recordings = []
    for scale in (0.5, 1.0, 2.0, 3.0):
        one = recording_of(0, {"block_residual": lambda change, rng: change})
        moved = tuple(scale * value for value in one.distances["block_residual"])
        products = tuple(tuple(scale ** (2 * elasticity) * value for value in row) for row in one.guided_products)
        recordings.append(replace(one, distances={"block_residual": moved}, guided_products=products))
    assert deviation_weight(recordings, "block_residual", order) == pytest.approx(elasticity / (order + 2), abs=1e-3)


def test_a_clock_and_a_proxy_that_falls_as_errors_rise_have_no_weight(recording_of: Callable) -> None:
    recordings = [
        recording_of(
            index,
            {
                "time_embedding": lambda change, rng: 1 + 0 * change,
                "block_residual": lambda change, rng: 1 / (0.01 + change),
            },
        )
        for index in range(6)
    ]
    assert deviation_weight(recordings, "time_embedding", 1) == 0
    assert deviation_weight(recordings, "block_residual", 1) == 0


@pytest.mark.parametrize(("weight", "share", "follows"), [(0.0, 0.0, True), (1.0, 0.0, False), (0.0, 0.1, False)])
def test_a_proxy_follows_the_schedule_if_it_moves_no_step_and_costs_no_block(
    drafted: Profile, recordings: list[Recording], weight: float, share: float, follows: bool
) -> None:
    recipe = replace(drafted.recipe, proxy="noisy_latent", proxy_share=share, deviation_weight=weight)
    recipe = replace(recipe, cumulative_distance=mean_distance(recordings, "noisy_latent"))
    assert follows_schedule(recordings, replace(drafted, recipe=recipe), 2.0) is follows
