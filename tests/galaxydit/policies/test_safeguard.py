"""The guard's decisions, on numbers alone."""

from itertools import pairwise

import numpy as np
import pytest

from galaxydit.policies.safeguard import (
    RECOVERY,
    SMALLEST_SHARE,
    WORSE,
    GuardAction,
    GuardRecord,
    Hindsight,
    Safeguard,
    guard_lines,
)


def hindsight(outputs: list[np.ndarray], **known: float) -> Hindsight:
    """Of the outputs of full steps, newest first; equal steps in sigma unless they are given."""
    differences = np.array([new - old for new, old in pairwise(outputs)])
    products = differences @ differences.T / differences.shape[1]
    given = {"ahead": 1.0, "skipping": (2.0, 1.0), "inner": 0.5} | known
    return Hindsight(10, tuple(map(tuple, products.tolist())), **given)


def with_ratio(ratio: float) -> Hindsight:
    """Order 1 errs `ratio` times as much as order 0."""
    differences = [1.0, 1.0 - ratio]
    return Hindsight(10, tuple(map(tuple, np.outer(differences, differences).tolist())), ahead=1.0)


def with_share(share: float) -> Hindsight:
    """y_1 errs `share` times as much as the correction assumes."""
    return Hindsight(10, ((1.0,) * 3,) * 3, inner=0.5 / share)


def after(guard: Safeguard, *seen: Hindsight) -> tuple[Safeguard, list[GuardAction]]:
    done: list[GuardAction] = []
    for one in seen:
        guard, actions = guard.after(one)
        done += actions
    return guard, done


def test_errors_are_those_of_the_predictions() -> None:
    y, y_1, y_2, y_3 = np.random.default_rng(0).normal(size=(4, 100))
    seen = hindsight([y, y_1, y_2, y_3], ahead=0.7)
    for slope in (0.0, 0.5, 1.0):
        predicted = y_1 + slope * 0.7 * (y_1 - y_2)
        assert seen.error(slope) == pytest.approx(np.mean((y - predicted) ** 2))
    expected = np.sqrt(np.mean((y - y_1 - 0.7 * (y_1 - y_2)) ** 2) / np.mean((y - y_1) ** 2))
    assert seen.slope_ratio() == pytest.approx(expected)


def test_the_correction_share_is_the_least_squares_share_of_the_growing_error() -> None:
    y, y_1, y_2, y_3 = np.random.default_rng(0).normal(size=(4, 100))
    seen = hindsight([y, y_1, y_2, y_3], skipping=(1.8, 0.6), inner=0.4)
    at_end, between = (one - y_2 - ahead * (y_2 - y_3) for one, ahead in ((y, 1.8), (y_1, 0.6)))
    assert seen.correction_share(1.0) == pytest.approx(between @ (0.4 * at_end) / np.sum((0.4 * at_end) ** 2))
    assert hindsight([y, y_1, y_2]).correction_share(0.0) is not None
    assert hindsight([y, y_1, y_2]).correction_share(1.0) is None, "the slope of y_2 is not known"


def test_an_error_that_grows_linearly_has_share_1() -> None:
    y_2, slope = np.zeros(3), np.array([1.0, -2.0, 0.5])
    assert hindsight([2 * slope, slope, y_2]).correction_share(0.0) == pytest.approx(1.0)


def test_rounding_is_no_error() -> None:
    outputs = list(np.random.default_rng(0).normal(size=(4, 200_000)))  # nothing but rounding of variance 1
    seen = hindsight(outputs, ahead=2.0, rounding=1.0)
    assert seen.error(0.0) == pytest.approx(0.0, abs=0.05)
    assert seen.error(1.0) == pytest.approx(0.0, abs=0.2)
    smooth = hindsight([3 * outputs[0], outputs[0], -outputs[0]], ahead=1.0, rounding=0.5)
    assert smooth.error(1.0) == 0.0
    assert smooth.slope_ratio() == 0.0


def test_three_bad_full_steps_halve_the_slope_and_the_next_drops_it() -> None:
    bad = with_ratio(3 * WORSE)
    guard, done = after(Safeguard(), bad, bad)
    assert (guard.followed, done) == (1.0, [])
    guard, done = after(guard, bad)
    assert (guard.followed, done) == (0.5, [GuardAction.SLOPE_HALVED])
    guard, done = after(guard, bad)
    assert (guard.followed, done) == (0.0, [GuardAction.SLOPE_DROPPED])


def test_half_of_a_slope_that_is_twice_too_large_stays() -> None:
    seen = hindsight([np.ones(3), np.zeros(3), -np.ones(3)], ahead=6.0)  # predicts 6, half of it 3
    assert seen.slope_ratio() == pytest.approx(5.0)
    guard, _ = after(Safeguard(), *[seen] * 10)
    assert guard.followed == 0.5


@pytest.mark.parametrize("ratio", [0.5, 1.0, 2.2])
def test_what_healthy_generations_show_changes_nothing(ratio: float) -> None:
    assert after(Safeguard(), *[with_ratio(ratio)] * 20)[1] == []


def test_one_full_step_in_three_may_be_bad() -> None:
    good, bad = with_ratio(0.7), with_ratio(1.6 * WORSE)
    assert after(Safeguard(), *[good, bad, good] * 6)[1] == []


def test_the_slope_comes_back_when_it_is_right_again() -> None:
    guard, _ = after(Safeguard(), *[with_ratio(3 * WORSE)] * 4)
    good = with_ratio(0.5)
    guard, done = after(guard, *[good] * (RECOVERY - 1))
    assert (guard.followed, done) == (0.0, [])
    guard, done = after(guard, good, good)
    assert (guard.followed, done) == (1.0, [GuardAction.SLOPE_RAISED, GuardAction.SLOPE_RESTORED])


def test_at_order_0_there_is_no_slope_to_guard() -> None:
    guard, done = after(Safeguard(order=0), *[with_ratio(9.0)] * 9)
    assert (guard.followed, done) == (0.0, [])


def test_an_unknown_ratio_is_no_sign() -> None:
    repeated = hindsight([np.zeros(3)] * 4)
    assert repeated.slope_ratio() is None
    assert after(Safeguard(), *[repeated] * 9)[1] == []


def test_overflown_outputs_change_nothing() -> None:
    nan = float("nan")
    assert after(Safeguard(), *[Hindsight(3, ((nan, nan), (nan, nan)), ahead=1.0)] * 9)[1] == []


def test_the_correction_goes_off_after_three_low_shares_and_comes_back() -> None:
    low, high = with_share(SMALLEST_SHARE / 2), with_share(0.8)
    assert low.correction_share(1.0) == pytest.approx(SMALLEST_SHARE / 2)
    assert after(Safeguard(), low, low, high, low, low)[1] == []
    guard, done = after(Safeguard(), low, low, low)
    assert (guard.corrects, done) == (False, [GuardAction.CORRECTION_OFF])
    guard, done = after(guard, high, high, high)
    assert (guard.corrects, done) == (True, [GuardAction.CORRECTION_ON])


def record(
    step: int, error: float, *, reused: int = 2, sample: int = 0, actions: tuple[GuardAction, ...] = ()
) -> GuardRecord:
    return GuardRecord(step, "transformer", "all branches", sample, reused, error, 0.8, 0.9, 1.0, True, actions)


def test_the_report_says_what_was_measured_and_done() -> None:
    assert guard_lines([record(1, 1.0, reused=0)]) == []
    assert guard_lines([record(3, 1.0, actions=(GuardAction.SLOPE_HALVED,))]) == [
        "At full steps after reused ones, order 1 errs 0.80 times as much as order 0, intervals err 0.90 times as much "
        "as the correction assumes",
        "Guard: half of the slope from step 3 on",
    ]
