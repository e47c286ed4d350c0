import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from galaxydit.budget import decide_with_plan
from galaxydit.config import Config
from galaxydit.controller import ControllerState, Observation, reads_proxy
from galaxydit.error_map import Curve, ErrorMap
from galaxydit.errors import GalaxyDiTError
from galaxydit.plan import Plan, place_full_steps, step_weights, with_forced

LINE = ErrorMap("distances", (Curve(0.5, (0.1, 1.0), (0.05, 0.5), (0.0, 0.0)),))


def shifted_sigmas(steps: int, shift: float = 8.0) -> tuple[float, ...]:
    """Flow-matching noise levels as Wan's scheduler makes them."""
    even = [1 - step / steps for step in range(steps)]
    return tuple(shift * sigma / (1 + (shift - 1) * sigma) for sigma in even)


def plan(**options: object) -> Plan:
    sigmas = shifted_sigmas(50)
    return Plan(**{"error_map": LINE, "sigmas": sigmas, "clock": tuple(0.1 * i for i in range(50)), **options})


def play(config: Config, distances: list[float], errors: list[float | None] | None = None) -> list[tuple[bool, str]]:
    """Whether each step is reused, and why."""
    steps, state, decisions = len(distances), ControllerState(), []
    for step, distance in enumerate(distances):
        observation = Observation(
            step, steps, distance if step else None, step > 0, shifted_sigmas(steps), errors[step] if errors else None
        )
        decision, state = decide_with_plan(observation, state, config)
        decisions.append((decision.reuse, decision.reason))
    return decisions


def full_steps(decisions: list[tuple[bool, str]]) -> int:
    return sum(not reuse for reuse, _ in decisions)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([1.25, 1.5, 2.0, 2.5, 3.0]),
    st.lists(st.floats(0, 2), min_size=50, max_size=50),
    st.sampled_from([0.0, 1 / 24]),
)
def test_every_budget_is_met_exactly_whatever_the_signal(speedup: float, distances: list[float], cost: float) -> None:
    config = Config(warmup=0.1, max_consecutive=8, plan=plan(speedup=speedup, reused_cost=cost))
    full = full_steps(play(config, distances))
    assert full == config.plan.full_steps(50)
    fraction = (full + (50 - full) * cost) / 50
    assert abs(fraction * speedup - 1) <= 0.05


@pytest.mark.parametrize("steps", [12, 20, 25, 36, 80])
def test_budgets_hold_for_other_step_counts(steps: int) -> None:
    config = Config(warmup=0.1, max_consecutive=8, plan=plan(speedup=2.0))
    assert full_steps(play(config, [0.1 + 0.05 * math.sin(step) for step in range(steps)])) == round(steps / 2)


def test_the_signal_moves_the_full_steps_to_where_it_is_large() -> None:
    config = Config(warmup=0.1, max_consecutive=None, plan=plan(speedup=2.5, decay=0.0))
    calm, lively = [0.1] * 50, [0.1] * 50
    for step in range(20, 28):
        lively[step] = 0.4
    there = [sum(not reuse for reuse, _ in play(config, distances)[20:28]) for distances in (calm, lively)]
    assert there[1] > there[0]


def test_max_error_is_never_passed_and_needs_no_budget() -> None:
    config = Config(warmup=0.1, max_consecutive=None, plan=plan(max_error=0.12))
    state, expected = ControllerState(), []
    for step in range(50):
        observation = Observation(step, 50, 0.1 if step else None, step > 0, shifted_sigmas(50))
        decision, state = decide_with_plan(observation, state, config)
        if decision.reuse:
            expected.append(decision.expected_error)
    assert max(expected) == pytest.approx(0.1)
    assert len(expected) > 20


def test_max_error_wins_over_speedup() -> None:
    fast = Config(warmup=0.1, max_consecutive=None, plan=plan(speedup=3.0))
    careful = Config(warmup=0.1, max_consecutive=None, plan=plan(speedup=3.0, max_error=0.06))
    assert full_steps(play(careful, [0.1] * 50)) > full_steps(play(fast, [0.1] * 50))


def test_without_a_profile_errors_are_learned_from_full_steps() -> None:
    config = Config(warmup=0.2, max_consecutive=None, plan=Plan(max_error=0.2))
    errors: list[float | None] = [None, None] + [0.05] * 8 + [None] * 40
    decisions = play(config, [0.1] * 50, errors)
    assert not any(reuse for reuse, _ in decisions[:10])
    # The ratio is 0.5, so that the error is expected to pass 0.2 when the distance passes 0.4.
    assert [reuse for reuse, _ in decisions[10:15]] == [True, True, True, True, False]
    unknown = play(config, [0.1] * 50)
    assert {reason for reuse, reason in unknown[10:-1]} == {"error not yet known"}


@pytest.mark.parametrize("distance", [None, math.nan, math.inf])
def test_a_distance_that_is_not_understood_computes_the_step(distance: float | None) -> None:
    config = Config(warmup=0.1, plan=plan(speedup=2.0))
    decision, _ = decide_with_plan(Observation(30, 50, distance, True, shifted_sigmas(50)), ControllerState(), config)
    assert not decision.reuse


def test_the_covered_distance_is_interpolated_in_sigma() -> None:
    """Twice as many steps: each covers half the distance. Another flow shift: the total stays the same."""
    measured = plan(speedup=2.0)
    for sigmas in (shifted_sigmas(100), shifted_sigmas(50, 3.0), shifted_sigmas(30, 12.0)):
        within = [s for s in sigmas if s >= measured.sigmas[-1]]
        total = sum(measured.covered(b) - measured.covered(a) for a, b in pairwise(within))
        exact = measured.covered(within[-1])
        assert total == pytest.approx(exact)
    double = shifted_sigmas(100)
    assert measured.covered(double[42]) - measured.covered(double[40]) == pytest.approx(0.1)


def test_weights_have_mean_one_and_fall_with_decay() -> None:
    assert step_weights(50, 0.0) == (1.0,) * 50
    weights = step_weights(50, 0.5)
    assert sum(weights) / 50 == pytest.approx(1.0)
    assert (weights[0], weights[-1]) == (1.5, 0.5)


@pytest.mark.parametrize(
    ("options", "field"),
    [({}, "speedup"), ({"speedup": 0.5}, "speedup"), ({"speedup": 2.0, "decay": 2.0}, "decay")],
)
def test_impossible_plans_are_refused(options: dict, field: str) -> None:
    with pytest.raises(GalaxyDiTError, match=field):
        Plan(**options)


def test_a_speedup_beyond_the_cost_of_reuse_is_refused() -> None:
    with pytest.raises(GalaxyDiTError, match="a reused step still costs"):
        Plan(speedup=4.0, reused_cost=0.3)


@pytest.mark.parametrize("steps", [20, 36, 50, 80])
@pytest.mark.parametrize(
    "schedule", [(), shifted_sigmas(50)[:10] + shifted_sigmas(50)[10::3] + (shifted_sigmas(50)[-1],)]
)
def test_placed_steps_are_as_many_as_the_budget_and_rise(steps: int, schedule: tuple[float, ...]) -> None:
    for speedup in (1.25, 2.0, 3.0):
        placed = place_full_steps(plan(speedup=speedup, schedule=schedule), shifted_sigmas(steps), 3)
        assert len(placed) == round(steps / speedup)
        assert list(placed) == sorted(set(placed))
        assert (placed[0], placed[-1]) == (0, steps - 1)


def test_a_calibrated_schedule_is_placed_exactly_and_stays_in_sigma_under_another_shift() -> None:
    sigmas = shifted_sigmas(50)
    steps = (*range(5), *range(6, 48, 2), 49)
    measured = plan(speedup=50 / len(steps), schedule=tuple(sigmas[step] for step in steps))
    assert place_full_steps(measured, sigmas, 5) == steps
    other = shifted_sigmas(50, 3.0)
    for step, place in zip(steps, place_full_steps(measured, other, 5), strict=True):
        nearest = min(abs(sigmas[step] - sigma) for sigma in other)
        assert abs(other[place] - sigmas[step]) <= nearest + 0.1


def test_follow_0_keeps_the_schedule_whatever_the_signal() -> None:
    sigmas = shifted_sigmas(50)
    schedule = tuple(sigmas[step] for step in (*range(5), *range(7, 49, 2), 49))
    config = Config(warmup=0.1, max_consecutive=None, plan=plan(speedup=50 / 27, schedule=schedule, follow=0.0))
    for distances in ([0.1] * 50, [0.1 + 0.09 * math.sin(step / 2) for step in range(50)]):
        assert [s for s, (reuse, _) in enumerate(play(config, distances)) if not reuse] == [
            *range(5),
            *range(7, 49, 2),
            49,
        ]


def test_a_schedule_that_no_signal_moves_needs_no_distance_and_has_the_whole_budget_for_full_steps() -> None:
    sigmas = shifted_sigmas(50)
    steps = (*range(5), *range(7, 49, 2), 49)
    schedule = tuple(sigmas[step] for step in steps)
    still = Config(warmup=0.0, plan=plan(speedup=50 / 26, schedule=schedule, follow=0.0, reused_cost=0.1))
    assert not reads_proxy(still)
    assert reads_proxy(replace(still, plan=replace(still.plan, follow=0.5)))
    assert reads_proxy(replace(still, plan=replace(still.plan, max_error=0.1)))
    assert reads_proxy(replace(still, plan=replace(still.plan, schedule=())))
    state, full = ControllerState(), []
    for step in range(50):
        decision, state = decide_with_plan(Observation(step, 50, None, step > 0, sigmas), state, still)
        if not decision.reuse:
            full.append(step)
    assert len(full) == 26
    assert replace(still.plan, follow=0.5).full_steps(50) < 26


def test_a_schedule_is_left_for_a_step_that_has_nothing_to_reuse() -> None:
    sigmas = shifted_sigmas(50)
    still = Config(warmup=0.0, plan=plan(speedup=20, schedule=(sigmas[0], sigmas[20], sigmas[49]), follow=0.0))
    decision, _ = decide_with_plan(Observation(3, 50, None, False, sigmas), ControllerState(), still)
    assert not decision.reuse
    assert decision.reason == "nothing to reuse yet"


def test_predictions_are_weighed_as_the_schedule_says_and_in_between_for_other_numbers_of_steps() -> None:
    sigmas = shifted_sigmas(50)
    steps = (0, 1, 10, 20, 30, 49)
    weights = ((1.0, 0.0), (0.9, -0.1), (0.8, -0.2), (0.7, -0.3), (0.6, -0.4), (0.5, -0.5))
    aim = plan(speedup=50 / 6, schedule=tuple(sigmas[step] for step in steps), weights=weights, follow=0.0)
    config, state, seen = Config(warmup=0.0, plan=aim), ControllerState(), {}
    for step in range(50):
        decision, state = decide_with_plan(Observation(step, 50, None, step > 0, sigmas), state, config)
        seen[step] = decision.weights
    assert seen[1] is None
    assert seen[2] == seen[9] == (0.9, -0.1)
    assert seen[48] == (0.6, -0.4)
    assert aim.weights_after(1, 11) == pytest.approx((0.95, -0.05))
    assert replace(aim, follow=0.5).weights_after(1, 6) is None


def test_weights_that_do_not_fit_the_schedule_are_refused() -> None:
    for weights in (((1.0, 0.0),), ((1.0,), (1.0,)), ((1.0, math.nan), (1.0, 0.0))):
        with pytest.raises(GalaxyDiTError, match="two numbers for each of the 2 steps"):
            plan(speedup=2.0, schedule=(0.9, 0.5), weights=weights)


@pytest.mark.parametrize(("warmup", "keep_last"), [(0.0, 1), (0.2, 1), (0.0, 5), (0.3, 4), (0.0, 0)])
def test_what_must_be_computed_is_paid_from_the_budget_of_a_schedule(warmup: float, keep_last: int) -> None:
    sigmas = shifted_sigmas(50)
    steps = (*range(3), *range(5, 48, 2), 49)
    weights = ((0.8, -0.1),) * len(steps)
    aim = plan(speedup=50 / len(steps), schedule=tuple(sigmas[step] for step in steps), weights=weights, follow=0.0)
    config, state, full = Config(warmup=warmup, keep_last=keep_last, plan=aim), ControllerState(), []
    weighed = []
    for step in range(50):
        decision, state = decide_with_plan(Observation(step, 50, None, step > 0, sigmas), state, config)
        if decision.reuse:
            weighed.append(decision.weights is not None)
        else:
            full.append(step)
    assert len(full) == len(steps)
    assert {*range(round(50 * warmup)), *range(50 - keep_last, 50)} <= set(full)
    assert all(weighed) == (tuple(full) == steps)
    assert any(weighed) == (tuple(full) == steps)


def test_more_than_the_budget_is_computed_only_where_it_must() -> None:
    assert with_forced((0, 10, 20, 49), 3, 2, 50) == (0, 1, 2, 48, 49)
    assert len(with_forced((0, 10, 20, 30, 40, 49), 2, 1, 50)) == 6
    assert with_forced((0, 10, 20, 49), 1, 1, 50) == (0, 10, 20, 49)
