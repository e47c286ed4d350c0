"""Fit the constants of predict.py to measurements, and check them on rows that the fit has not seen.

`python -m galaxydit.eval.cost.fit_constants [--write]` prints the errors for each set of measurements.json, and of fits
without each model and number of GPUs. `--write` replaces constants.json.
"""

import json
import logging
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import least_squares

from galaxydit.eval.cost.architecture import architecture_of
from galaxydit.eval.cost.hardware import BACKENDS, GPUS
from galaxydit.eval.cost.operations import Operations, attention, linear
from galaxydit.eval.cost.predict import FILE, Constants, Errors, Platform, Workload, layer_seconds, predict
from galaxydit.files import write_json
from galaxydit.pipelines.table import Table
from galaxydit.validation import parse

MEASUREMENTS = Path(__file__).with_name("measurements.json")
PUBLISHED = "ML.ENERGY"  # name of the set with the published videos that constants are fitted to
ROW_SPREAD = 0.03  # relative spread that a group of rows is given in the fit
_OF_KERNEL = {"fraction": (0.8, 0.12), "exposed_exponentials": (0.5, 0.7)}
_OF_GPU = {
    "matrix_fraction": (0.65, 0.15), "elementwise_passes": (10.0, 0.3), "ulysses_fraction": (0.15, 0.5),
    "base_watts": (300.0, 0.4), "joules_per_matrix_flop": (5e-13, 0.3), "joules_per_attention_flop": (8e-13, 0.3),
}  # fmt: skip
_SHARED = {
    "compiled_fraction": (0.33, 0.5), "ring_fraction": (0.15, 0.5), "exchange_seconds": (1.2e-3, 0.3),
    "decoder_flops": (8e5, 0.35), "conversion_seconds": (0.012, 0.5), "text_fraction": (0.15, 0.5),
    "joules_per_byte": (4e-11, 0.5),
}  # fmt: skip
PRIOR: dict[str, Any] = {
    "shared": _SHARED,
    "kernels": dict.fromkeys(BACKENDS, _OF_KERNEL),
    "gpus": dict.fromkeys(("H100", "B200"), _OF_GPU),
}
"""Expected value of each constant, and the spread of its logarithm. FlashAttention-2 reaches up to 73 % of an A100's
peak in its author's measurement (arXiv 2307.08691); the other values are orders of magnitude.
"""


@dataclass(frozen=True)
class Row:
    """One measurement of a part of one video of a batch, or of a layer."""

    name: str  # of the set in measurements.json
    fitted: bool
    label: str  # hub id or layer
    platform: Platform
    work: Workload | Operations  # of a layer
    part: str  # "pipeline" (the whole call), "denoising", "text encoder", "decoder" or "layer"
    steps: int
    compute_fraction: float
    seconds: float
    joules: float  # over all GPUs, nan if unknown

    @property
    def group(self) -> tuple[Any, ...]:
        """What the rows of a group share."""
        platform = replace(self.platform, ulysses=self.platform.gpus, ring=1)
        return self.label, platform, self.part, self.steps, self.compute_fraction


def read_measurements(path: Path = MEASUREMENTS) -> list[Row]:
    rows = []
    for data in json.loads(path.read_text(encoding="utf-8")):
        for values in data["rows"]:
            cells = dict(zip(data["columns"], values, strict=True))
            rows.append(_row(data["name"], data["fitted"], data["settings"] | cells))
    return rows


def _row(name: str, fitted: bool, row: Mapping[str, Any]) -> Row:
    compiled = row.get("compiled", False)
    platform = Platform(GPUS[row["gpu"]], row["kernel"], compiled, row.get("ulysses", 1), row.get("ring", 1))
    joules = math.nan if row["joules"] is None else row["joules"]
    if "layer" in row:
        first, tokens, width = shape = row["shape"]
        if row["layer"] == "attention":
            layer = attention(1, tokens, tokens, first, width)
        else:
            layer = linear(1, *shape)
        seconds = layer.flops / row["tflops"] / 1e12
        return Row(name, fitted, f"{row['layer']} {shape}", platform, layer, "layer", 1, 1.0, seconds, joules)
    steps = row["steps"]
    batch = row.get("batch", 1)
    work = Workload(architecture_of(row["model"]), row["height"], row["width"], row["frames"], steps, batch)
    part = row.get("part", "pipeline")
    share = row.get("compute_fraction", 1.0)
    seconds = row["seconds"] / batch
    return Row(name, fitted, row["model"], platform, work, part, steps, share, seconds, joules)


def predicted(row: Row, constants: Constants) -> tuple[float, float]:
    """Predicted seconds and joules of a row; nan for the joules of a layer and of the text encoder."""
    if not isinstance(row.work, Workload):
        return sum(layer_seconds(row.work, row.platform, constants)[:2]), math.nan
    made = predict(row.work, row.platform, constants, row.compute_fraction)
    parts = {
        "pipeline": (made.seconds, made.joules),
        "denoising": (made.denoising, made.denoising_joules),
        "text encoder": (made.text_encoder, math.nan),
        "decoder": (made.decoder, row.platform.gpu.watts * made.decoder),
    }
    return parts[row.part]


def log_errors(row: Row, constants: Constants) -> tuple[float, float]:
    """log(predicted / measured) of seconds and joules; nan where not measured."""
    seconds, joules = predicted(row, constants)
    return math.log(seconds / row.seconds), math.log(joules / row.joules)


def fit(rows: Sequence[Row]) -> Constants:
    """The constants with the largest posterior, where each group of rows has equal weight.

    Likelihood: log(predicted / measured) is Gaussian around 0. Prior: each logarithm is Gaussian around that in
    `PRIOR`.
    """
    sizes = Counter(row.group for row in rows)
    weights: list[float] = []
    for row in rows:
        weight = 1 / ROW_SPREAD / math.sqrt(sizes[row.group])
        weights += (weight, weight)  # of seconds and joules
    expected, spread = np.array(list(_leaves(PRIOR))).T

    def constants_of(steps: np.ndarray) -> Constants:
        """`steps` are of each logarithm, in units of its spread."""
        values = expected * np.exp(spread * steps)
        filled: Constants = parse(Constants, _filled(PRIOR, iter(values.tolist())))
        return filled

    def residuals(steps: np.ndarray) -> np.ndarray:
        constants = constants_of(steps)
        errors: list[float] = []
        for row in rows:
            errors += log_errors(row, constants)
        # What was not measured has no error.
        return np.concatenate([np.nan_to_num(np.array(weights) * np.array(errors)), steps])

    return constants_of(least_squares(residuals, np.zeros(len(expected))).x)


def _leaves(tree: Mapping[str, Any]) -> Iterator[tuple[float, float]]:
    for part in tree.values():
        if isinstance(part, dict):
            yield from _leaves(part)
        else:
            yield part


def _filled(tree: Mapping[str, Any], leaves: Iterator[float]) -> dict[str, Any]:
    """`tree` with these values in the order of `_leaves`."""
    filled: dict[str, Any] = {}
    for key, part in tree.items():
        filled[key] = _filled(part, leaves) if isinstance(part, dict) else next(leaves)
    return filled


class Check(NamedTuple):
    """log(predicted / measured) of rows, and means of |predicted / measured - 1|, each of seconds and joules."""

    rows: np.ndarray
    mean: np.ndarray
    worst_group: np.ndarray


def check(rows: Sequence[Row], constants: Constants) -> Check:
    errors = [log_errors(row, constants) for row in rows]
    by_group: dict[tuple[Any, ...], list[tuple[float, float]]] = {}
    for row, error in zip(rows, errors, strict=True):
        by_group.setdefault(row.group, []).append(error)
    means = [_mean(np.array(group)) for group in by_group.values()]
    return Check(np.array(errors), _mean(np.array(errors)), np.fmax.reduce(means))


def _mean(errors: np.ndarray) -> np.ndarray:
    known = ~np.isnan(errors)
    sums = np.abs(np.expm1(errors)).sum(axis=0, where=known)
    return np.where(known.any(axis=0), sums / np.maximum(known.sum(axis=0), 1), math.nan)


def left_out(rows: Sequence[Row], key: Callable[[Row], Any]) -> dict[tuple[str, Any], Check]:
    """Errors by set and value of `key`, with constants fitted to all rows with another value or False."""
    by_place: dict[tuple[str, Any], list[Row]] = {}
    for row in rows:
        if value := key(row):
            by_place.setdefault((row.name, value), []).append(row)
    fits: dict[Any, Constants] = {}
    for _, value in by_place:
        if value not in fits:
            fits[value] = fit([row for row in rows if key(row) != value])
    return {place: check(of_place, fits[place[1]]) for place, of_place in by_place.items()}


def main() -> None:
    """Print the errors; with --write, replace constants.json."""
    rows = read_measurements()
    seen = [row for row in rows if row.fitted]
    constants = fit(seen)
    by_set: dict[str, list[Row]] = {}
    for row in rows:
        fitted = "fitted" if row.fitted else "not fitted"
        by_set.setdefault(f"{row.name}, {fitted}", []).append(row)
    checks = {name: check(of_set, constants) for name, of_set in by_set.items()}
    models = left_out(seen, lambda row: row.part != "layer" and row.label)
    counts = left_out(seen, lambda row: row.name == PUBLISHED and f"{row.platform.gpus} GPUs")
    for (name, value), made in (models | counts).items():
        checks[f"{name}, fit without {value}"] = made
    logging.getLogger(__name__).info("%s", _table_of(checks).markdown())
    if "--write" in sys.argv:
        unseen = np.concatenate([checked.rows for checked in models.values()])
        # The factor that holds 90 % of the measurements, of seconds and of joules
        of_seconds, of_joules = np.exp(np.nanquantile(np.abs(unseen), 0.9, axis=0)).tolist()
        errors = Errors(of_seconds, of_joules, _extrapolated(rows, constants))
        write_json(FILE, {"constants": asdict(constants), "errors": asdict(errors)})


def _table_of(checks: Mapping[str, Check]) -> Table:
    headings = ("measurements", "number", "seconds", "seconds, worst group", "joules", "joules, worst group")
    cells = []
    for name, checked in checks.items():
        row = [name, str(len(checked.rows))]
        for mean, worst in zip(checked.mean, checked.worst_group, strict=True):
            row += (_percent(mean), _percent(worst))
        cells.append(row)
    return Table(headings, cells)


def _percent(error: float) -> str:
    return "" if math.isnan(error) else f"{error:.1%}"


def _extrapolated(rows: Sequence[Row], constants: Constants) -> dict[str, float]:
    """`Errors.extrapolated`: a GPU without measurements has the largest factor of all unfitted GPUs."""
    largest: dict[str, float] = {}
    for row in rows:
        name = row.platform.gpu.name
        if name not in constants.gpus:
            factor = math.exp(np.nanmax(np.abs(log_errors(row, constants))))
            largest[name] = max(largest.get(name, 1.0), factor)
    known = {row.platform.name for row in rows if row.fitted}
    extrapolated = {}
    for gpu in GPUS.values():
        for kernel in BACKENDS:
            platform = Platform(gpu, kernel).name
            if platform not in known:
                extrapolated[platform] = largest.get(gpu.name, max(largest.values()))
    return extrapolated


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    main()
