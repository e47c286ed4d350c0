import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from galaxydit.errors import GalaxyDiTError
from galaxydit.policies.config import Controller, GalaxyDiTConfig
from galaxydit.policies.error_map import Curve, ErrorMap
from galaxydit.policies.online import Online, place_full_steps, step_costs
from galaxydit.policies.policy import Decision

LINE = ErrorMap("distances", (Curve(0.5, (0.1, 1.0), (0.05, 0.5), (0.0, 0.0)),))


def shifted_sigmas(steps: int, shift: float = 8.0) -> tuple[float, ...]:
    """Flow-matching noise levels as Wan's scheduler makes them."""
    even = [1 - step / steps for step in range(steps)]
    return tuple(shift * sigma / (1 + (shift - 1) * sigma) for sigma in even)


def config(policy: Online, warmup: float = 0.1, max_consecutive: int | None = None) -> GalaxyDiTConfig:
    return GalaxyDiTConfig(policy, warmup=warmup, max_consecutive=max_consecutive)


def play(config: GalaxyDiTConfig, distances: list[float], errors: list[float | None] | None = None) -> list[Decision]:
    """The decision at each step."""
    steps, controller = len(distances), Controller(config)
    return [
        controller.decide(
            step, steps, distance if step else None, step > 0, shifted_sigmas(steps), errors[step] if errors else None
        )
        for step, distance in enumerate(distances)
    ]


def full_steps(decisions: list[Decision]) -> int:
    return sum(not decision.reuse for decision in decisions)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([1.25, 1.5, 2.0, 2.5, 3.0]),
    st.lists(st.floats(0, 2), min_size=50, max_size=50),
    st.sampled_from([0.0, 1 / 24]),
)
def test_every_budget_is_met_exactly_whatever_the_signal(speedup: float, distances: list[float], cost: float) -> None:
    policy = Online(speedup, error_map=LINE, reused_cost=cost)
    full = full_steps(play(config(policy, max_consecutive=8), distances))
    assert full == policy.full_steps(50)
    fraction = (full + (50 - full) * cost) / 50
    assert abs(fraction * speedup - 1) <= 0.05


@pytest.mark.parametrize("steps", [12, 20, 25, 36, 80])
def test_budgets_hold_for_other_step_counts(steps: int) -> None:
    distances = [0.1 + 0.05 * math.sin(step) for step in range(steps)]
    assert full_steps(play(config(Online(2.0, error_map=LINE), max_consecutive=8), distances)) == round(steps / 2)


def test_the_signal_moves_the_full_steps_to_where_it_is_large() -> None:
    settings = config(Online(2.5, error_map=LINE))
    calm, lively = [0.1] * 50, [0.1] * 50
    for step in range(20, 28):
        lively[step] = 0.4
    there = [full_steps(play(settings, distances)[20:28]) for distances in (calm, lively)]
    assert there[1] > there[0]


def test_max_error_is_never_passed_and_needs_no_budget() -> None:
    decisions = play(config(Online(max_error=0.12, error_map=LINE)), [0.1] * 50)
    expected = [decision.expected_error for decision in decisions if decision.reuse]
    assert max(expected) == pytest.approx(0.1)
    assert len(expected) > 20


def test_max_error_wins_over_speedup() -> None:
    fast, careful = (config(Online(3.0, max_error, error_map=LINE)) for max_error in (None, 0.06))
    assert full_steps(play(careful, [0.1] * 50)) > full_steps(play(fast, [0.1] * 50))


def test_without_a_profile_errors_are_learned_from_full_steps() -> None:
    settings = config(Online(max_error=0.2), warmup=0.2)
    errors: list[float | None] = [None, None] + [0.05] * 8 + [None] * 40
    decisions = [decision.reuse for decision in play(settings, [0.1] * 50, errors)]
    assert not any(decisions[:10])
    # The ratio is 0.5, so that the error is expected to pass 0.2 when the distance passes 0.4.
    assert decisions[10:15] == [True, True, True, True, False]
    unknown = play(settings, [0.1] * 50)
    assert {decision.reason for decision in unknown[10:-1]} == {"error not yet known"}


@pytest.mark.parametrize("distance", [None, math.nan, math.inf])
def test_a_distance_that_is_not_understood_computes_the_step(distance: float | None) -> None:
    controller = Controller(config(Online(2.0, error_map=LINE)))
    assert not controller.decide(30, 50, distance, True, shifted_sigmas(50)).reuse


def test_step_costs_have_mean_one_and_fall_with_decay() -> None:
    assert step_costs(50, 0.0) == (1.0,) * 50
    costs = step_costs(50, 0.5)
    assert sum(costs) / 50 == pytest.approx(1.0)
    assert (costs[0], costs[-1]) == (1.5, 0.5)


@pytest.mark.parametrize(
    ("options", "field"),
    [({}, "speedup"), ({"speedup": 0.5}, "speedup"), ({"speedup": 2.0, "decay": 2.0}, "decay")],
)
def test_impossible_budgets_are_refused(options: dict, field: str) -> None:
    with pytest.raises(GalaxyDiTError, match=field):
        Online(**options)


def test_a_speedup_beyond_the_cost_of_reuse_is_refused() -> None:
    with pytest.raises(GalaxyDiTError, match="a reused step still costs"):
        Online(speedup=4.0, reused_cost=0.3)


@pytest.mark.parametrize("steps", [20, 36, 50, 80])
def test_placed_steps_are_as_many_as_the_budget_and_rise(steps: int) -> None:
    for speedup in (1.25, 2.0, 3.0):
        placed = place_full_steps(steps, Online(speedup).full_steps(steps), 3)
        assert len(placed) == round(steps / speedup)
        assert list(placed) == sorted(set(placed))
        assert (placed[0], placed[-1]) == (0, steps - 1)
