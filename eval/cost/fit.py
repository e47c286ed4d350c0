"""Fit the constants of predict.py to published measurements, and check them on models and GPU counts left out of a fit.

    python -m galaxydit.eval.cost.fit [--write]

prints the errors of the fit to all rows, of fits without each model and of fits without each GPU count, and how often
the prediction names the faster of Ulysses alone and ring attention alone. `--write` replaces constants.json.

A row is one measurement of measurements.json; a group has the rows of one model, GPU and number of GPUs.
"""

import json
import logging
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from galaxydit.eval.cost.architecture import architecture_of
from galaxydit.eval.cost.hardware import GPUS
from galaxydit.eval.cost.predict import FILE, Constants, GpuConstants, SharedConstants, Split, Workload, predict
from galaxydit.eval.markdown import table
from galaxydit.files import write_json

MEASUREMENTS = Path(__file__).with_name("measurements.json")
ROW_SPREAD = 0.03  # relative spread that a group of rows is given in the fit
# Expected value of each constant, and the spread of its logarithm. FlashAttention-2 reaches 35 % of an H100's peak in
# its authors' measurement (arXiv 2407.08608); the other values are orders of magnitude.
SHARED = SharedConstants(0.38, 0.1, 0.15, 1.2e-3, 3500.0, 4e-11)
SHARED_SPREAD = SharedConstants(0.12, 0.5, 0.5, 0.3, 0.35, 0.5)
OF_GPU = GpuConstants(0.65, 10.0, 0.15, 300.0, 5e-13, 8e-13)
OF_GPU_SPREAD = GpuConstants(0.15, 0.3, 0.5, 0.4, 0.3, 0.3)


@dataclass(frozen=True)
class Row:
    """One measurement: seconds of the whole pipeline call (text encoder, denoising, decoder) for a batch of videos, and
    joules of one video over all GPUs.

    `model` is a hub id, `gpu` a name in `GPUS`, and `split` says how the GPUs share a video. `work` holds the model's
    architecture, the size of a video, the number of steps and the number of videos in the batch.
    """

    model: str
    gpu: str
    split: Split
    work: Workload
    seconds: float
    joules: float

    @property
    def group(self) -> tuple[str, str, int]:
        """Model, GPU and number of GPUs."""
        return self.model, self.gpu, self.split.gpus


def read_measurements(path: Path = MEASUREMENTS) -> list[Row]:
    """The rows of a file in the format of measurements.json."""
    data = json.loads(path.read_text(encoding="utf-8"))
    return [_row(dict(zip(data["columns"], values, strict=True))) for values in data["rows"]]


def _row(row: dict[str, Any]) -> Row:
    size = (row["height"], row["width"], row["frames"])
    work = Workload(architecture_of(row["model"]), *size, row["steps"], row["batch"])
    split = Split(row["ulysses"], row["ring"])
    return Row(row["model"], row["gpu"], split, work, row["seconds"], row["joules"])


def log_errors(row: Row, constants: Constants) -> tuple[float, float]:
    """The natural logarithm of predicted / measured, for the seconds and for the joules."""
    made = predict(row.work, GPUS[row.gpu], constants, row.split)
    return math.log(made.seconds * row.work.batch / row.seconds), math.log(made.joules / row.joules)


def fit(rows: Sequence[Row]) -> Constants:
    """The constants with the largest posterior, where each group of rows has equal weight.

    Likelihood: log(predicted / measured) is Gaussian around 0. Prior: the logarithm of each constant is Gaussian around
    that of its value in `SHARED` or `OF_GPU`.
    """
    sizes = Counter(row.group for row in rows)
    weights = np.array([1 / ROW_SPREAD / math.sqrt(sizes[row.group]) for row in rows for _ in range(2)])
    expected, spread = _flat(SHARED, OF_GPU), _flat(SHARED_SPREAD, OF_GPU_SPREAD)

    def residuals(steps: np.ndarray) -> np.ndarray:
        constants = _constants(expected * np.exp(spread * steps))
        errors = np.array([error for row in rows for error in log_errors(row, constants)])
        return np.concatenate([weights * errors, steps])

    return _constants(expected * np.exp(spread * least_squares(residuals, np.zeros(len(expected))).x))


def _flat(shared: SharedConstants, of_gpu: GpuConstants) -> np.ndarray:
    values = [getattr(shared, field.name) for field in fields(shared)]
    return np.array(values + [getattr(of_gpu, field.name) for _ in GPUS for field in fields(of_gpu)])


def _constants(values: np.ndarray) -> Constants:
    first, width = len(fields(SharedConstants)), len(fields(GpuConstants))
    of_gpus = values[first:].reshape(len(GPUS), width).tolist()
    gpus = {name: GpuConstants(*of_gpu) for name, of_gpu in zip(GPUS, of_gpus, strict=True)}
    return Constants(SharedConstants(*values[:first].tolist()), gpus)


@dataclass(frozen=True)
class Check:
    """Errors of predictions for measured rows.

    groups: by group (model, GPU, number of GPUs), log(predicted / measured) of seconds and joules, `(rows, 2)`.
    """

    groups: dict[tuple[str, str, int], np.ndarray]

    @property
    def rows(self) -> np.ndarray:
        """The errors of all rows, `(rows, 2)`."""
        return np.concatenate(list(self.groups.values()))

    @property
    def mean(self) -> np.ndarray:
        """Mean of |predicted / measured - 1| over the rows, for seconds and for joules, `(2,)`."""
        return _mean_error(self.rows)

    @property
    def worst_group(self) -> np.ndarray:
        """Mean of |predicted / measured - 1| in the group where it is largest, for seconds and for joules, `(2,)`.

        The two numbers may be of different groups.
        """
        return np.max([_mean_error(errors) for errors in self.groups.values()], axis=0)


def _mean_error(log_errors: np.ndarray) -> np.ndarray:
    return np.abs(np.expm1(log_errors)).mean(axis=0)


def check(rows: Iterable[Row], constants: Constants) -> Check:
    """Errors of the predictions for these rows with these constants.

    `Check.groups` holds them by group: for each row log(predicted / measured) of seconds and of joules (`log_errors`).
    `Check.mean` and `Check.worst_group` return means of |predicted / measured - 1| over all rows and over a group.
    """
    errors: dict[tuple[str, str, int], list[tuple[float, float]]] = {}
    for row in rows:
        errors.setdefault(row.group, []).append(log_errors(row, constants))
    return Check({group: np.array(pairs) for group, pairs in errors.items()})


def left_out(rows: Sequence[Row], key: Callable[[Row], Any]) -> dict[Any, Check]:
    """By value that `key` has on the rows: errors of predicted seconds and joules for the rows with this value.

    The constants of these predictions are fitted to all other rows.
    """
    values = dict.fromkeys(map(key, rows))
    fits = {value: fit([row for row in rows if key(row) != value]) for value in values}
    return {value: check([row for row in rows if key(row) == value], fits[value]) for value in values}


def named_splits(rows: Sequence[Row], constants: Constants) -> list[bool]:
    """For each pair of rows of one group and batch size: whether the prediction names the faster row.

    In one row of a pair the GPUs share a video by Ulysses alone, in the other by ring attention alone.
    """
    pairs: dict[Any, list[Row]] = {}
    for row in rows:
        if row.split.gpus > 1 and 1 in (row.split.ulysses, row.split.ring):
            pairs.setdefault((row.group, row.work.batch), []).append(row)
    both = [pair for pair in pairs.values() if len(pair) == 2]

    def predicted(row: Row) -> float:
        return predict(row.work, GPUS[row.gpu], constants, row.split).seconds

    return [min(pair, key=predicted) is min(pair, key=lambda row: row.seconds) for pair in both]


def main() -> None:
    """Print the errors; with --write, replace constants.json."""
    rows = read_measurements()
    constants = fit(rows)
    models = left_out(rows, lambda row: row.model)
    counts = left_out(rows, lambda row: row.split.gpus)
    checks = {"fit on all rows": check(rows, constants)}
    checks |= {f"without {model}": checked for model, checked in models.items()}
    checks |= {f"without {count} GPU{'s' * (count > 1)}": checked for count, checked in counts.items()}
    log = logging.getLogger(__name__)
    headings = ("fit", "rows", "seconds, mean", "worst group", "joules, mean", "worst group")
    cells = []
    for name, checked in checks.items():
        errors = [f"{error:.1%}" for pair in zip(checked.mean, checked.worst_group, strict=True) for error in pair]
        cells.append([name, str(len(checked.rows)), *errors])
    log.info("%s", table(headings, cells, labels=("fit",)))
    named = named_splits(rows, constants)
    log.info("faster of plain Ulysses and plain ring named: %d of %d", sum(named), len(named))
    if "--write" in sys.argv:
        unseen = np.concatenate([checked.rows for checked in models.values()])
        # 90 % of the predictions miss by at most these factors, 1 or larger.
        factors = np.exp(np.quantile(np.abs(unseen), 0.9, axis=0)).tolist()
        errors_of = dict(zip(("seconds_factor", "joules_factor"), factors, strict=True))
        write_json(FILE, {"constants": constants.to_dict(), "errors": errors_of})


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    main()
