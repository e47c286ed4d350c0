import math

import numpy as np
import pytest

from galaxydit.config import GalaxyDiTConfig
from galaxydit.policies.policy import Controller, Limits, Observation, Reason, warmup_steps
from galaxydit.policies.threshold import Threshold, threshold_for


def play(config: GalaxyDiTConfig, distances: list[float | None], steps: int | None = None) -> list[bool]:
    """Which steps are reused when these distances are observed one after the other."""
    controller = Controller(config.policy, config.limits)
    reused = []
    for step, distance in enumerate(distances):
        decision = controller.decide(Observation(step, steps or len(distances), distance, has_history=step > 0))
        reused.append(decision.reuse)
    return reused


def test_distance_adds_up_since_the_last_full_step() -> None:
    reused = play(GalaxyDiTConfig(Threshold(0.25), warmup=0.1), [0.1] * 20)
    assert reused == [False, False] + [True, True, False] * 5 + [True, True, False]


def test_warmup_rounds_up_and_is_never_reused() -> None:
    assert [warmup_steps(50, 0.2), warmup_steps(25, 0.2), warmup_steps(36, 0.2), warmup_steps(10, 0.0)] == [10, 5, 8, 1]
    assert play(GalaxyDiTConfig(Threshold(9.0), warmup=0.3), [0.0] * 20)[:7] == [False] * 6 + [True]


def test_the_last_steps_are_computed() -> None:
    assert play(GalaxyDiTConfig(Threshold(9.0), keep_last=3, max_consecutive=None), [0.0] * 20)[-4:] == [
        True,
        False,
        False,
        False,
    ]


def test_the_cap_ends_a_run_of_reuse() -> None:
    assert play(GalaxyDiTConfig(Threshold(9.0), max_consecutive=2, warmup=0.0), [0.0] * 9) == [
        False,
        True,
        True,
    ] * 2 + [
        False,
        True,
        False,
    ]


def test_threshold_zero_reuses_nothing_even_where_nothing_changes() -> None:
    assert not any(play(GalaxyDiTConfig(Threshold(0.0), warmup=0.0), [0.0] * 20))


@pytest.mark.parametrize("distance", [None, math.nan, math.inf])
def test_a_distance_that_is_not_understood_computes_the_step(distance: float | None) -> None:
    distances: list[float | None] = [0.0] * 20
    distances[12] = distance
    reused = play(GalaxyDiTConfig(Threshold(9.0), max_consecutive=None), distances)
    assert reused[11]
    assert not reused[12]
    assert reused[13]


def test_nothing_is_reused_without_history() -> None:
    decision = Controller(Threshold(9.0), Limits()).decide(Observation(15, 50, 0.0, has_history=False))
    assert not decision.reuse
    assert decision.reason is Reason.NO_HISTORY


def test_a_larger_threshold_reuses_as_much_or_more() -> None:
    distances: list[float | None] = [0.05 + 0.04 * math.sin(step) for step in range(50)]
    counts = [sum(play(GalaxyDiTConfig(Threshold(threshold)), distances)) for threshold in (0.05, 0.1, 0.2, 0.4, 0.8)]
    assert counts == sorted(counts)
    assert counts[0] < counts[-1]


@pytest.mark.parametrize("full_steps", [11, 14, 20, 33, 50])
def test_a_threshold_is_found_for_a_number_of_full_steps(full_steps: int) -> None:
    distances = np.random.default_rng(full_steps).uniform(0.5, 1.5, 50).tolist()
    limits = Limits(warmup=0.2 if full_steps < 50 else 1.0, max_consecutive=None)
    config = GalaxyDiTConfig(
        Threshold(threshold_for(distances, full_steps, limits)), warmup=limits.warmup, max_consecutive=None
    )
    assert play(config, [None, *distances[1:]]).count(False) == full_steps
