"""What rules see, and the grids of their settings."""

import pytest

from galaxydit.eval.arena.policies.rule import Seen, check_steps, is_kept_full, share_of_steps, thresholds, warm_ups


def test_the_change_is_relative_to_the_step_before() -> None:
    assert Seen(1, 50, moved=0.3, size=1.5).change == pytest.approx(0.2)
    assert Seen(0, 50).change is None


def test_first_and_last_steps_are_kept_full() -> None:
    kept = [is_kept_full(Seen(step, 6), first=2, last=1) for step in range(6)]
    assert kept == [True, True, False, False, False, True]


def test_a_share_of_steps_is_what_authors_give_for_fifty() -> None:
    assert [share_of_steps(steps, 0.1) for steps in (50, 36, 4)] == [5, 4, 1]


def test_a_warm_up_of_one_step_is_offered_once() -> None:
    assert [warm_ups(steps, 0.2) for steps in (50, 4)] == [[10, 1], [1]]


def test_thresholds_rise_in_equal_ratios() -> None:
    assert thresholds(0.1, 10, 3) == [0.1, 1.0, 10.0]


def test_another_number_of_steps_is_refused_with_the_cure() -> None:
    with pytest.raises(ValueError, match=r"steps is 40, allowed is 50.*calibrate it anew"):
        check_steps(Seen(0, 40), 50)
