"""What rules see, and the grids of their settings."""

import pytest

from galaxydit.eval.methods.rules.decision import (
    AccumulationRule,
    StepObservation,
    alignment,
    is_kept_full,
    share_of_steps,
    warm_ups,
)


def test_the_change_is_relative_to_the_step_before() -> None:
    assert StepObservation(1, 50, change_size=0.3, size=1.5).change == pytest.approx(0.2)
    assert StepObservation(0, 50).change is None


def test_alignment_stays_between_once_and_twice_the_way() -> None:
    assert [alignment(moved, 2.0) for moved in (1.0, 3.0, 5.0)] == [1.0, 1.5, 2.0]
    assert alignment(1.0, 0.0) == 2.0


def test_a_step_whose_cost_is_unknown_is_computed() -> None:
    costs = [None, 0.4, 0.4, None, 0.4, 0.4, 0.4]
    rule = AccumulationRule(1.0, 0, 0, lambda seen: costs[seen.step])
    assert [rule.decide(StepObservation(step, 7)) for step in range(7)] == [False, True, True, False, True, True, False]


def test_first_and_last_steps_are_kept_full() -> None:
    kept = [is_kept_full(StepObservation(step, 6), first=2, last=1) for step in range(6)]
    assert kept == [True, True, False, False, False, True]


def test_a_share_of_steps_is_what_authors_give_for_fifty() -> None:
    assert [share_of_steps(steps, 0.1) for steps in (50, 36, 4)] == [5, 4, 1]


def test_a_warm_up_of_one_step_is_offered_once() -> None:
    assert [warm_ups(steps, 0.2) for steps in (50, 4)] == [[10, 1], [1]]
