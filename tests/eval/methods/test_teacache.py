"""TeaCache's decisions, worked out by hand."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from galaxydit.eval.methods.accumulation import Accumulation
from galaxydit.eval.methods.teacache import estimate, fit_polynomial, settings

Decided = Callable[..., list[bool]]


def new_rule(threshold: float, coefficients: list[float], first: int, last: int) -> Accumulation:
    return Accumulation(threshold, first, last, partial(estimate, coefficients))


def test_estimates_add_up_until_the_threshold_and_begin_anew_at_a_full_step(decided: Decided) -> None:
    # The polynomial 2 x + 0.01 turns a change of .02 into .05: three of them reach .15, which computes.
    rule = new_rule(0.15, [2.0, 0.01], first=1, last=0)
    assert decided(rule, [None] + [0.02] * 6) == [False, True, True, False, True, True, False]


def test_a_large_change_computes_at_once(decided: Decided) -> None:
    rule = new_rule(0.15, [1.0, 0.0], first=1, last=0)
    assert decided(rule, [None, 0.1, 0.2, 0.1]) == [False, True, False, True]


def test_the_first_and_last_steps_are_computed_and_do_not_count(decided: Decided) -> None:
    rule = new_rule(0.25, [1.0, 0.0], first=3, last=1)
    assert decided(rule, [None] + [0.1] * 6) == [False, False, False, True, True, False, False]


def test_an_estimate_below_zero_counts_as_zero(decided: Decided) -> None:
    rule = new_rule(0.1, [1.0, -1.0], first=1, last=0)
    assert decided(rule, [None, 0.5, 1.2, 0.5]) == [False, True, False, True]


def test_threshold_zero_computes_everything(decided: Decided) -> None:
    assert not any(decided(new_rule(0.0, [1.0, -1.0], first=1, last=0), [None, 0.0, 0.1, 0.2]))


def test_the_polynomial_of_degree_four_is_recovered() -> None:
    truth = [3.0, -2.0, 0.5, 1.0, 0.1]
    changes = list(np.linspace(0.0, 1.0, 20))
    assert fit_polynomial(changes, [np.polyval(truth, x) for x in changes]) == pytest.approx(truth, abs=1e-6)


def test_few_points_get_a_polynomial_of_lower_degree() -> None:
    assert fit_polynomial([0.1, 0.2, 0.1, 0.2], [0.3, 0.5, 0.3, 0.5]) == pytest.approx([2.0, 0.1])


def test_settings_hold_both_modes_of_the_authors() -> None:
    modes = {(one["signal"], one["first"], one["last"]) for one in settings(50)}
    assert modes == {("time_embedding", 1, 1), ("time_projection", 5, 0)}
