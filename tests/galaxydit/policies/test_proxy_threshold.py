import math
from dataclasses import replace

import pytest

from galaxydit.policies.error_map import CumulativeDistance
from galaxydit.policies.general_schedule import general_schedule
from galaxydit.policies.policy import Controller, Limits, Observation, Reason
from galaxydit.policies.proxy_threshold import ProxyThreshold, full_speedup
from galaxydit.policies.schedule import Schedule

STEPS = 50
SIGMAS = tuple(1 - step / STEPS for step in range(STEPS))
PLANNED = (0, 1, 2, 3, 5, 7, 10, 14, 19, 25, 32, 40, 49)
MEAN = tuple(0.05 + 0.04 * math.sin(step / 5) for step in range(STEPS))
CURVE = CumulativeDistance(SIGMAS, tuple(sum(MEAN[1 : step + 1]) for step in range(STEPS)))
SCHEDULE = Schedule(STEPS / len(PLANNED), tuple(SIGMAS[step] for step in PLANNED), None, CURVE, planned_sigmas=SIGMAS)
LIMITS = Limits(warmup=0.02, max_consecutive=None)


def full_steps(policy: ProxyThreshold, distances: list[float | None], limits: Limits = LIMITS) -> tuple[int, ...]:
    controller = Controller(policy, limits)
    observations = [Observation(step, STEPS, distances[step], step > 0, SIGMAS) for step in range(STEPS)]
    return tuple(one.step for one in observations if not controller.decide(one).reuse)


def test_a_sample_that_moves_like_the_calibration_follows_the_schedule() -> None:
    assert full_steps(ProxyThreshold(SCHEDULE), [None, *MEAN[1:]]) == PLANNED


def test_a_larger_threshold_computes_fewer_steps() -> None:
    policies = [ProxyThreshold(SCHEDULE, value, leeway=None) for value in (0.3, 1.0, 3.0, 1e9)]
    counts = [len(full_steps(policy, [None, *MEAN[1:]])) for policy in policies]
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] == 2  # the warm-up of one step and the last step


def test_a_sudden_change_of_one_sample_computes_a_step_that_the_schedule_reuses() -> None:
    changed = [None, *MEAN[1:]]
    changed[29] = 1.0
    assert 29 not in PLANNED
    assert 29 in full_steps(ProxyThreshold(SCHEDULE), changed)


def test_a_sample_that_moves_faster_throughout_computes_more_steps() -> None:
    faster = [None, *(1.5 * distance for distance in MEAN[1:])]
    assert len(full_steps(ProxyThreshold(SCHEDULE, leeway=None), faster)) > len(PLANNED)


def test_a_deviation_counts_by_its_weight() -> None:
    changed = [None, *MEAN[1:]]
    changed[29] = 1.0
    assert full_steps(ProxyThreshold(SCHEDULE, deviation_weight=0.0), changed) == PLANNED
    assert full_steps(ProxyThreshold(SCHEDULE, deviation_weight=0.01), changed) == PLANNED
    assert 29 in full_steps(ProxyThreshold(SCHEDULE, deviation_weight=0.5), changed)


@pytest.mark.parametrize("start", [19, 30])
def test_a_second_transformer_goes_on_with_the_schedule(start: int) -> None:
    controller = Controller(ProxyThreshold(replace(SCHEDULE, boundary=SIGMAS[start - 1])), LIMITS)
    chosen = []
    for step in range(start, STEPS):
        distance = None if step == start else MEAN[step]
        if not controller.decide(Observation(step, STEPS, distance, step > start, SIGMAS)).reuse:
            chosen.append(step)
    later = [step for step in PLANNED if step > start]
    assert chosen[0] == start
    assert len(chosen) - 1 == pytest.approx(len(later), abs=1)


@pytest.mark.parametrize("factor", [0.01, 0.5, 2.0, 100.0])
def test_the_leeway_keeps_the_speedup_however_far_a_sample_moves(factor: float) -> None:
    chosen = full_steps(ProxyThreshold(SCHEDULE), [None, *(factor * distance for distance in MEAN[1:])])
    assert len(chosen) == len(PLANNED)
    for step in range(STEPS):
        done, planned = (sum(full <= step for full in steps) for steps in (chosen, PLANNED))
        assert abs(done - planned) <= 1


@pytest.mark.parametrize("speedup", [1.5, 2.0, 2.5, 3.0])
@pytest.mark.parametrize("scale", [0.01, 1.0])
def test_without_a_calibration_the_threshold_is_learned_at_any_scale_of_the_proxy(speedup: float, scale: float) -> None:
    policy = ProxyThreshold(general_schedule(speedup))
    chosen = full_steps(policy, [None, *(scale * distance for distance in MEAN[1:])])
    assert len(chosen) == pytest.approx(STEPS / speedup, abs=2)


@pytest.mark.parametrize("distance", [None, math.inf, math.nan])
def test_a_missing_distance_computes_the_step(distance: float | None) -> None:
    distances: list[float | None] = [None, *MEAN[1:]]
    distances[29] = distance
    assert 29 in full_steps(ProxyThreshold(SCHEDULE), distances)


def test_the_warm_up_is_computed_whatever_the_proxy_does() -> None:
    limits = replace(LIMITS, warmup=0.2)
    policy = ProxyThreshold(SCHEDULE, 1e9, leeway=None)
    assert full_steps(policy, [None, *MEAN[1:]], limits) == (*range(10), 49)


def test_short_generations_are_computed_in_full_if_the_profile_does_not_serve_them() -> None:
    policy = ProxyThreshold(replace(SCHEDULE, fewest_steps=60), 1e9)
    decision, _ = policy.decide(Observation(20, STEPS, 0.1, True, SIGMAS))
    assert decision.reason is Reason.UNSERVED


@pytest.mark.parametrize(("speedup", "share"), [(2.0, 0.0), (2.0, 0.05), (3.0, 0.02)])
def test_the_cost_of_the_proxy_takes_full_steps(speedup: float, share: float) -> None:
    full = STEPS / full_speedup(speedup, share)
    assert (full + share * (STEPS - full)) / STEPS == pytest.approx(1 / speedup)
