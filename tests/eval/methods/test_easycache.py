"""EasyCache's decisions, worked out by hand."""

import torch

from galaxydit.eval.methods.easycache import predicted_change, repeat_difference, settings
from galaxydit.eval.methods.rules.decision import AccumulationRule, StepObservation
from galaxydit.eval.methods.rules.rule_observer import CachedOutput

KNOWN = {"slope": 0.5, "output_size": 2.0}


def decisions(rule: AccumulationRule, changes: list[float]) -> list[bool]:
    steps = len(changes)
    return [rule.decide(StepObservation(step, steps, change_size=one, **KNOWN)) for step, one in enumerate(changes)]


def test_predicted_changes_add_up_until_the_threshold() -> None:
    # k |dx| / |y| = .5 x .2 / 2 = .05 a step: three of them reach .15, which computes.
    rule = AccumulationRule(0.149, 1, 0, predicted_change)
    assert decisions(rule, [0.2] * 8) == [False, True, True, False, True, True, False, True]


def test_the_first_and_last_steps_are_computed_and_do_not_count() -> None:
    rule = AccumulationRule(0.11, 3, 1, predicted_change)
    assert decisions(rule, [0.2] * 8) == [False, False, False, True, True, False, True, False]


def test_without_a_rate_the_step_is_computed() -> None:
    rule = AccumulationRule(1.0, 1, 0, predicted_change)
    assert not rule.decide(StepObservation(0, 4))
    assert not rule.decide(StepObservation(1, 4, change_size=0.1, output_size=1.0))
    assert rule.decide(StepObservation(2, 4, change_size=0.1, output_size=1.0, slope=0.5))


def test_threshold_zero_computes_everything() -> None:
    assert not any(decisions(AccumulationRule(0.0, 1, 0, predicted_change), [0.0, 0.1, 0.2]))


def test_reuse_adds_the_kept_difference_to_the_new_latent() -> None:
    full = CachedOutput(torch.tensor([1.0, 2.0]), torch.tensor([1.5, 1.0]))
    assert torch.equal(repeat_difference(torch.tensor([10.0, 20.0]), full, "cond", 3), torch.tensor([10.5, 19.0]))


def test_settings_hold_the_authors_warm_up_and_none() -> None:
    assert {(one["first"], one["last"]) for one in settings(50)} == {(10, 1), (1, 1)}
