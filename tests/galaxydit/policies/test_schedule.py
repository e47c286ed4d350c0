import math
from itertools import pairwise
from typing import Any

import pytest

from galaxydit.policies.error_map import CumulativeDistance, Curve, ErrorMap
from galaxydit.policies.policy import Controller, Decision, Limits, Observation, Reason
from galaxydit.policies.schedule import FixedSteps, Schedule, full_step_count, place_full_steps, with_forced

LINE = ErrorMap((Curve(0.5, (0.1, 1.0), (0.05, 0.5), (0.0, 0.0)),))


def shifted_sigmas(steps: int, shift: float = 8.0) -> tuple[float, ...]:
    """Flow-matching noise levels as Wan's scheduler makes them."""
    even = [1 - step / steps for step in range(steps)]
    return tuple(shift * sigma / (1 + (shift - 1) * sigma) for sigma in even)


SIGMAS = shifted_sigmas(50)
MEASURED = CumulativeDistance(SIGMAS, tuple(0.1 * step for step in range(50)))


def schedule_of(steps: tuple[int, ...], **options: Any) -> Schedule:
    """The schedule of a calibration with 50 steps that computes these."""
    given: dict[str, Any] = {"error_map": LINE, "cumulative_distance": MEASURED, **options}
    return Schedule(given.pop("speedup", 50 / len(steps)), tuple(SIGMAS[step] for step in steps), **given)


def play(policy: Schedule, distances: list[float] | None = None, warmup: float = 0.0, **limits: Any) -> list[Decision]:
    """The decision at each of 50 steps."""
    controller = Controller(policy, Limits(warmup, **limits))
    return [
        controller.decide(Observation(step, 50, distances[step] if distances and step else None, step > 0, SIGMAS))
        for step in range(50)
    ]


def computed(decisions: list[Decision]) -> list[int]:
    return [step for step, decision in enumerate(decisions) if not decision.reuse]


def test_fixed_steps_alone_decide() -> None:
    controller = Controller(FixedSteps((0, 4, 7)), Limits())
    decisions = [controller.decide(Observation(step, 10, None, step > 0)) for step in range(10)]
    assert computed(decisions) == [0, 4, 7]


def test_the_cumulative_distance_is_interpolated_in_sigma() -> None:
    """Twice as many steps: each covers half the distance. Another flow shift: the total stays the same."""
    for sigmas in (shifted_sigmas(100), shifted_sigmas(50, 3.0), shifted_sigmas(30, 12.0)):
        within = [s for s in sigmas if s >= SIGMAS[-1]]
        total = sum(MEASURED(b) - MEASURED(a) for a, b in pairwise(within))
        assert total == pytest.approx(MEASURED(within[-1]))
    double = shifted_sigmas(100)
    assert MEASURED(double[42]) - MEASURED(double[40]) == pytest.approx(0.1)


@pytest.mark.parametrize("steps", [20, 36, 50, 80])
def test_placed_steps_are_as_many_as_the_budget_and_rise(steps: int) -> None:
    sigmas = SIGMAS[:10] + SIGMAS[10::3] + (SIGMAS[-1],)
    for speedup in (1.25, 2.0, 3.0):
        placed = place_full_steps(sigmas, full_step_count(steps, speedup), shifted_sigmas(steps))
        assert len(placed) == round(steps / speedup)
        assert list(placed) == sorted(set(placed))
        assert (placed[0], placed[-1]) == (0, steps - 1)


def test_a_calibrated_schedule_is_placed_exactly_and_stays_in_sigma_under_another_shift() -> None:
    steps = (*range(5), *range(6, 48, 2), 49)
    measured = schedule_of(steps)
    assert place_full_steps(measured.sigmas, full_step_count(50, measured.speedup), SIGMAS) == steps
    few, other = (0, 20, 35, 45, 49), shifted_sigmas(50, 3.0)
    placed = place_full_steps(tuple(SIGMAS[step] for step in few), len(few), other)
    # Between the first and the last step, each is the step whose noise level brackets the planned level most closely.
    for step, place in zip(few[1:-1], placed[1:-1], strict=True):
        assert other[place + 1] < SIGMAS[step] < other[place - 1]
    assert placed != few, "another flow shift moves the steps"
    by_position = place_full_steps(tuple(SIGMAS[step] for step in few), len(few), other, planned_sigmas=SIGMAS)
    assert by_position == few


def test_the_schedule_is_kept_whatever_the_signal() -> None:
    steps = (*range(5), *range(7, 49, 2), 49)
    for distances in (None, [0.1] * 50, [0.1 + 0.09 * math.sin(step / 2) for step in range(50)]):
        assert computed(play(schedule_of(steps), distances, warmup=0.1, max_consecutive=None)) == list(steps)


def test_a_reused_step_tells_the_error_that_the_calibration_expects() -> None:
    decisions = play(schedule_of((0, 1, 4, 49)), max_consecutive=None)
    assert [decisions[step].expected_error for step in (2, 3, 5, 6)] == pytest.approx([0.05, 0.1, 0.05, 0.1])
    unknown = play(schedule_of((0, 1, 4, 49), cumulative_distance=None))
    assert {decision.expected_error for decision in unknown} == {None}


def test_a_schedule_is_left_for_a_step_that_has_nothing_to_reuse() -> None:
    controller = Controller(schedule_of((0, 20, 49), speedup=20), Limits(warmup=0.0))
    decision = controller.decide(Observation(3, 50, None, False, SIGMAS))
    assert not decision.reuse
    assert decision.reason is Reason.NO_HISTORY


@pytest.mark.parametrize(("warmup", "keep_last"), [(0.0, 1), (0.2, 1), (0.0, 5), (0.3, 4), (0.0, 0)])
def test_what_must_be_computed_is_paid_from_the_budget_of_a_schedule(warmup: float, keep_last: int) -> None:
    steps = (*range(3), *range(5, 48, 2), 49)
    full = computed(play(schedule_of(steps), warmup=warmup, keep_last=keep_last))
    assert len(full) == len(steps)
    assert {*range(round(50 * warmup)), *range(50 - keep_last, 50)} <= set(full)


def test_more_than_the_budget_is_computed_only_where_it_must() -> None:
    assert with_forced((0, 10, 20, 49), 3, 2, 50) == (0, 1, 2, 48, 49)
    assert len(with_forced((0, 10, 20, 30, 40, 49), 2, 1, 50)) == 6
    assert with_forced((0, 10, 20, 49), 1, 1, 50) == (0, 10, 20, 49)
