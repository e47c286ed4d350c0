"""Predictions hold for models and GPU counts that the fit has not seen."""

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from galaxydit.eval.cost.fit_constants import PUBLISHED, Check, Row, check, fit, left_out, predicted, read_measurements
from galaxydit.eval.cost.predict import Constants, Workload, fitted

ALL = read_measurements()
ROWS = [row for row in ALL if row.fitted]
HERE = "H100, models"


def model_of(row: Row) -> object:
    return row.part != "layer" and row.label


@cache
def refitted() -> Constants:
    return fit(ROWS)


@cache
def models_left_out() -> dict[tuple[str, object], Check]:
    return left_out(ROWS, model_of)


def test_the_shipped_constants_are_those_of_the_shipped_measurements() -> None:
    shipped, again = fitted()[0], refitted()
    assert vars(shipped.shared) == pytest.approx(vars(again.shared), rel=1e-3)
    for name, gpu in again.gpus.items():
        assert vars(shipped.gpus[name]) == pytest.approx(vars(gpu), rel=1e-3)
    for name, kernel in again.kernels.items():
        assert vars(shipped.kernels[name]) == pytest.approx(vars(kernel), rel=1e-3)


@pytest.mark.parametrize("key", ["model", "gpus"])
def test_seconds_and_joules_of_what_the_fit_has_not_seen(key: str) -> None:
    if key == "model":
        checks = models_left_out()
    else:
        checks = left_out(ROWS, lambda row: row.name == PUBLISHED and row.platform.gpus)
    assert len(checks) == (7 if key == "model" else 4)
    for value, checked in checks.items():
        assert max(checked.mean) <= 0.12, value
        assert max(checked.worst_group) <= 0.20, value


def test_all_rows_of_models_left_out_are_near() -> None:
    checks = models_left_out()
    for name, limit in ((PUBLISHED, 0.07), (HERE, 0.1)):
        errors = np.concatenate([np.abs(np.expm1(each.rows)) for (place, _), each in checks.items() if place == name])
        assert np.nanmean(errors, axis=0) == pytest.approx(np.zeros(2), abs=limit)
        assert np.nanmax(errors) <= 0.2


@pytest.mark.parametrize(
    ("name", "limit"),
    [("H100, with the plugin", 0.07), ("H100, again", 0.07), ("H200", 0.1), ("A100, published", 0.15)],
)
def test_rows_that_no_constant_was_fitted_to_are_near(name: str, limit: float) -> None:
    rows = [row for row in ALL if row.name == name]
    assert rows
    assert not any(row.fitted for row in rows)
    assert np.nanmax(np.abs(np.expm1(check(rows, fitted()[0]).rows))) <= limit


def named_splits(rows: list[Row], constants: Constants) -> list[bool]:
    """Whether the prediction names the faster of each pair of rows, Ulysses alone and with a ring."""
    pairs: dict[object, list[Row]] = {}
    for row in rows:
        where = row.platform
        if isinstance(row.work, Workload) and where.gpus > 1 and 1 in (where.ulysses, where.ring):
            pairs.setdefault((row.group, row.work.batch), []).append(row)
    both = [pair for pair in pairs.values() if len(pair) == 2]
    named = (min(pair, key=lambda row: predicted(row, constants)[0]) for pair in both)
    return [row is min(pair, key=lambda row: row.seconds) for row, pair in zip(named, both, strict=True)]


def test_the_faster_of_plain_ulysses_and_plain_ring_is_named() -> None:
    named = named_splits(ROWS, refitted())
    assert len(named) == 50
    assert sum(named) >= 0.8 * len(named)


def test_the_fit_describes_its_own_rows() -> None:
    for name in (PUBLISHED, HERE):
        assert max(check([row for row in ROWS if row.name == name], refitted()).mean) <= 0.04


@pytest.mark.parametrize(("name", "file"), [("H200", ""), ("H100, again", "-compiled-H100")])
def test_measured_pipelines_are_those_of_the_results(name: str, file: str) -> None:
    folder = Path(__file__).parents[3] / "eval" / "results" / "gpu"
    videos = json.loads((folder / f"pipeline-1.3B-480p{file}.json").read_text(encoding="utf-8"))["rows"]
    results = [(row["end_to_end_seconds"], row["energy_per_video_joules"]) for row in videos]
    rows = [(row.seconds, row.joules) for row in ALL if row.name == name and row.part == "pipeline"]
    assert np.array(rows) == pytest.approx(np.array(results), rel=1e-4)
