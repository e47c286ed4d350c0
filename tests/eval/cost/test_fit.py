"""Predictions hold for models and GPU counts that the fit has not seen."""

from functools import cache

import pytest

from galaxydit.eval.cost.fit import check, fit, left_out, named_splits, read_measurements
from galaxydit.eval.cost.predict import Constants, fitted

ROWS = read_measurements()


@cache
def refitted() -> Constants:
    return fit(ROWS)


def test_the_shipped_constants_are_those_of_the_shipped_measurements() -> None:
    shipped, again = fitted()[0], refitted()
    assert vars(shipped.shared) == pytest.approx(vars(again.shared), rel=1e-3)
    for name, gpu in again.gpus.items():
        assert vars(shipped.gpus[name]) == pytest.approx(vars(gpu), rel=1e-3)


@pytest.mark.parametrize("key", ["model", "gpus"])
def test_seconds_and_joules_of_what_the_fit_has_not_seen(key: str) -> None:
    checks = left_out(ROWS, lambda row: row.model if key == "model" else row.split.gpus)
    assert len(checks) == 4
    for value, checked in checks.items():
        assert max(checked.mean) <= 0.15, value
        assert max(checked.worst_group) <= 0.30, value


def test_the_faster_of_plain_ulysses_and_plain_ring_is_named() -> None:
    named = named_splits(ROWS, refitted())
    assert len(named) == 50
    assert sum(named) >= 0.8 * len(named)


def test_the_fit_describes_its_own_rows() -> None:
    assert max(check(ROWS, refitted()).mean) <= 0.06
