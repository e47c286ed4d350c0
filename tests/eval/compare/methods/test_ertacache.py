"""ERTACache's schedule and corrections, worked out by hand."""

import pytest
import torch

from galaxydit.eval.compare.methods.ertacache import full_step_before, slope_through_origin
from galaxydit.eval.compare.rules.decision import ScheduleRule, StepObservation
from galaxydit.eval.compare.rules.step_pairs import over_pairs


def test_a_step_is_reused_while_the_kept_residual_is_near_enough() -> None:
    # The error grows by .1 a step of gap, and twice as fast from step 4 on.
    errors = over_pairs(8, lambda earlier, step: (step - earlier) * (0.2 if step >= 4 else 0.1))
    assert full_step_before(errors, 0.25) == [0, 0, 0, 3, 3, 5, 5, 7]


def test_threshold_zero_computes_everything() -> None:
    assert full_step_before(over_pairs(4, lambda earlier, step: 0.0), 0.0) == [0, 1, 2, 3]


def test_a_residual_older_than_the_table_is_not_reused() -> None:
    assert full_step_before([[], [0.0], [0.0], [0.0]], 1.0) == [0, 0, 2, 2]


def test_the_rule_follows_the_schedule() -> None:
    rule = ScheduleRule({0, 2}, 4)
    assert [rule.decide(StepObservation(step, 4)) for step in range(4)] == [False, True, False, True]


def test_another_number_of_steps_is_refused() -> None:
    with pytest.raises(ValueError, match="steps=5 is not allowed: expected 4"):
        ScheduleRule({0, 2}, 4).decide(StepObservation(0, 5))


def test_the_factor_is_that_of_least_squares_over_all_pairs() -> None:
    pairs = [(torch.tensor([2.0, 0.0]), torch.tensor([1.0, 1.0])), (torch.tensor([3.0]), torch.tensor([2.0]))]
    assert slope_through_origin(pairs) == pytest.approx((2 + 6) / (2 + 4))
