"""RA-CFGCache's composed and weighted risk, worked out by hand."""

import math
from collections.abc import Callable, Sequence

import pytest
import torch

from galaxydit.eval.methods.ra_cfgcache import (
    RiskLimit,
    branch_correlation,
    fit_law,
    guided_error,
    sensitivities,
)
from galaxydit.eval.methods.trajectory import LONGEST_GAP, Pairs, RecordedSteps, over_pairs

EVEN = [1.0] * 50  # all steps weigh alike


Decided = Callable[..., list[bool]]


def rule_of(threshold: float, first: int, change: float, rho: Pairs, weights: Sequence[float] = EVEN) -> RiskLimit:
    """A rule whose estimated error is the change, the same for each pair of steps."""
    changes = over_pairs(len(rho), lambda earlier, step: change)
    return RiskLimit(threshold, first, [1.0, 0.0], changes, rho, weights)


def test_the_guided_error_is_composed_as_guidance_composes_the_branches() -> None:
    generator = torch.Generator().manual_seed(0)
    u, c = torch.randn(2, 1000, generator=generator).double()
    rho = float(torch.dot(u, c) / (u.norm() * c.norm()))
    guided = u + 6.0 * (c - u)
    assert guided_error(float(u.norm()), float(c.norm()), 6.0, rho) == pytest.approx(float(guided.norm()))


def test_equal_errors_cancel_down_to_one_and_opposite_ones_add_up() -> None:
    assert guided_error(0.1, 0.1, 6.0, 1.0) == pytest.approx(0.1)
    assert guided_error(0.1, 0.1, 6.0, -1.0) == pytest.approx(1.1)
    assert guided_error(0.7, 0.1, 1.0, 0.5) == pytest.approx(0.1)


def test_sensitivities_follow_the_law_at_a_mean_of_one() -> None:
    assert sensitivities(5, (1.0, 1.0, 0.0)) == pytest.approx([2.0, 1.5, 1.0, 0.5, 0.0])
    assert sensitivities(3, (1.0, 2.0, 0.5)) == pytest.approx([1.5 / 2.75 * 3, 0.75 / 2.75 * 3, 0.5 / 2.75 * 3])


def test_risks_add_up_to_the_threshold_and_begin_anew_at_a_full_step(decided: Decided) -> None:
    # r = x; both branches alike and rho 1, so the risk of a step is its drift: .1, then .2 more, then .3 more.
    changes = over_pairs(6, lambda earlier, step: 0.1 * (step - earlier))
    rule = RiskLimit(0.35, 1, [1.0, 0.0], changes, over_pairs(6, lambda a, t: 1.0), EVEN)
    assert decided(rule, [6.0] * 6, "guidance_scale") == [False, True, True, False, True, True]


def test_a_lower_correlation_of_the_branches_computes_more(decided: Decided) -> None:
    for rho, reused in ((1.0, 5), (-1.0, 0)):
        rule = rule_of(0.55, 1, 0.1, over_pairs(6, lambda a, t, rho=rho: rho))
        assert sum(decided(rule, [6.0] * 6, "guidance_scale")) == reused


def test_the_correlation_is_that_of_the_last_full_step(decided: Decided) -> None:
    # Only pairs from step 2 are alike: step 1 is computed, step 2 too, and then step 3 is reused.
    rho = over_pairs(4, lambda earlier, step: 1.0 if earlier == 2 else -1.0)
    assert decided(rule_of(0.5, 1, 0.1, rho), [6.0] * 4, "guidance_scale") == [False, False, False, True]


def test_late_errors_weigh_less_under_a_decay(decided: Decided) -> None:
    rule = rule_of(0.16, 1, 0.1, over_pairs(5, lambda a, t: 1.0), sensitivities(5, (1.0, 1.0, 0.0)))
    # Weighted .1 x (1.5, 1, .5, 0): the first fits the threshold of .16 alone, the last two together.
    assert decided(rule, [6.0] * 5, "guidance_scale") == [False, True, False, True, True]


def test_the_first_steps_and_threshold_zero_compute(decided: Decided) -> None:
    for first, threshold in ((4, 9.0), (1, 0.0)):
        rule = rule_of(threshold, first, 0.0, over_pairs(4, lambda a, t: 1.0))
        assert not any(decided(rule, [6.0] * 4, "guidance_scale"))


def test_another_number_of_steps_is_refused(decided: Decided) -> None:
    with pytest.raises(ValueError, match="steps=5 is not allowed: expected 4"):
        decided(rule_of(1.0, 1, 0.1, over_pairs(4, lambda a, t: 1.0)), [6.0] * 5, "guidance_scale")


def test_a_full_step_longer_ago_than_the_longest_gap_is_not_reused(decided: Decided) -> None:
    rule = rule_of(9.0, 1, 0.0, over_pairs(LONGEST_GAP + 3, lambda a, t: 1.0))
    found = decided(rule, [6.0] * (LONGEST_GAP + 3), "guidance_scale")
    assert found == [False, *[True] * LONGEST_GAP, False, True]


def test_a_pair_of_steps_is_found_by_the_later_one_and_the_gap() -> None:
    table = over_pairs(5, lambda earlier, step: 10 * earlier + step)
    assert table[4] == [34, 24, 14, 4]
    assert [len(row) for row in table] == [0, 1, 2, 3, 4]


def test_the_correlation_is_between_the_errors_of_reuse_and_the_mean_of_recordings() -> None:
    zero = torch.zeros(2)

    def recorded(unconditional: list[float]) -> RecordedSteps:
        outputs = {"cond": [torch.tensor([1.0, 0.0]), zero], "uncond": [torch.tensor(unconditional), zero]}
        return RecordedSteps(latents=[zero, zero], outputs=outputs)

    assert branch_correlation([recorded([3.0, 3.0])], 0, 1) == pytest.approx(1 / math.sqrt(2), abs=1e-6)
    assert branch_correlation([recorded([3.0, 0.0]), recorded([0.0, 3.0])], 0, 1) == pytest.approx(0.5)
    unguided = recorded([3.0, 3.0])
    del unguided.outputs["uncond"]
    assert branch_correlation([unguided], 0, 1) == 1.0


def test_the_law_is_recovered_from_its_own_values() -> None:
    law = (1.214, 3.832, 0.2463)  # published for Wan2.1-T2V-1.3B
    values = sensitivities(50, law)
    ratios = {step: 1.7 * values[step] for step in range(5, 50, 4)}
    assert sensitivities(50, fit_law(50, ratios)) == pytest.approx(values, rel=1e-3)
