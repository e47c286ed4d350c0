"""EasyCache's decisions, worked out by hand."""

import torch

from galaxydit.eval.arena.policies.attachment import Full
from galaxydit.eval.arena.policies.easycache import predicted_change, repeat_difference, settings
from galaxydit.eval.arena.policies.rule import AccumulationRule, Seen

KNOWN = {"slope": 0.5, "output_size": 2.0}


def decisions(rule: AccumulationRule, moved: list[float]) -> list[bool]:
    return [rule.decide(Seen(step, len(moved), moved=change, **KNOWN)) for step, change in enumerate(moved)]


def test_predicted_changes_add_up_until_the_threshold() -> None:
    # k |dx| / |y| = .5 x .2 / 2 = .05 a step: three of them reach .15, which computes.
    rule = AccumulationRule(0.149, 1, 0, predicted_change)
    assert decisions(rule, [0.2] * 8) == [False, True, True, False, True, True, False, True]


def test_the_first_and_last_steps_are_computed_and_do_not_count() -> None:
    rule = AccumulationRule(0.11, 3, 1, predicted_change)
    assert decisions(rule, [0.2] * 8) == [False, False, False, True, True, False, True, False]


def test_without_a_rate_the_step_is_computed() -> None:
    rule = AccumulationRule(1.0, 1, 0, predicted_change)
    assert not rule.decide(Seen(0, 4))
    assert not rule.decide(Seen(1, 4, moved=0.1, output_size=1.0))
    assert rule.decide(Seen(2, 4, moved=0.1, output_size=1.0, slope=0.5))


def test_threshold_zero_computes_everything() -> None:
    assert not any(decisions(AccumulationRule(0.0, 1, 0, predicted_change), [0.0, 0.1, 0.2]))


def test_reuse_adds_the_kept_difference_to_the_new_latent() -> None:
    full = Full(torch.tensor([1.0, 2.0]), torch.tensor([1.5, 1.0]))
    assert torch.equal(repeat_difference(torch.tensor([10.0, 20.0]), full, "cond", 3), torch.tensor([10.5, 19.0]))


def test_settings_hold_the_authors_warm_up_and_none() -> None:
    assert {(one["first"], one["last"]) for one in settings(50)} == {(10, 1), (1, 1)}
