"""The rows of a latency run: from measurements to JSON data, and back from the JSON file."""

import json
from collections.abc import Sequence
from dataclasses import astuple, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from galaxydit.errors import refusal
from galaxydit.files import split_digest
from galaxydit.pipelines.disturbance import PLAIN, Timed, disturbance
from galaxydit.pipelines.written_by import LATENCY

KEPT = ("method", "compiled", "syncs_per_step", "peak_bytes", "bytes_held", "note")  # of `LatencySamples` in a row


@dataclass
class LatencySamples:
    """Measurements of one method so far; a trajectory is one run of all denoising steps."""

    method: str  # such as "plain"
    compiled: bool
    full_ms: list[float] = field(default_factory=list)
    reused_ms: list[float] = field(default_factory=list)
    whole_seconds: list[float] = field(default_factory=list)  # of each trajectory
    joules: list[float] = field(default_factory=list)  # of each trajectory
    blocks: int = 0  # evaluated in a trajectory, both branches; 0 if not counted
    syncs_per_step: float | None = None  # of host and device, up to the first full step after a reused one
    peak_bytes: int | None = None  # weights included
    bytes_held: int | None = None  # between calls
    load: float | None = None  # `load_per_core` after the last trajectory; None where the clock leaves it out
    note: str | None = None  # error of a failed method


def spread_of(values: Sequence[float]) -> dict[str, float] | None:
    """Quartiles as "low", "median" and "high", and "count"; None without values."""
    if not values:
        return None
    low, middle, high = np.percentile(values, [25, 50, 75]).tolist()
    return {"median": middle, "low": low, "high": high, "count": len(values)}


def rows_from(samples: Sequence[LatencySamples]) -> list[dict[str, Any]]:
    """A row for each of the samples as JSON data; None where nothing was measured.

    Seconds and joules are medians of trajectories. A speedup is against plain, both eager or both compiled.
    """
    by_name = {(sample.method, sample.compiled): sample for sample in samples}
    unmeasured = LatencySamples("", False)
    rows = []
    for sample in samples:
        plain = by_name.get((PLAIN, sample.compiled), unmeasured)
        bare = by_name.get((f"{sample.method}, no proxy", sample.compiled), unmeasured)
        row = {name: getattr(sample, name) for name in KEPT} | _measured(sample, plain, bare)
        # Compiled and eager trajectories differ in speed, so each kind is judged by itself.
        of_kind = [other for other in samples if other.compiled == sample.compiled]
        row["disturbance"] = _disturbance(of_kind)
        rows.append(row)
    return rows


def _measured(sample: LatencySamples, plain: LatencySamples, bare: LatencySamples) -> dict[str, Any]:
    """What follows from the samples of a method, of plain, and of the method without its proxy."""
    seconds = _median(sample.whole_seconds)
    joules = _median(sample.joules)
    speedup = _ratio(_median(plain.whole_seconds), seconds)
    fraction = _ratio(sample.blocks, plain.blocks)
    probe_ms = efficiency = None
    if sample.reused_ms and bare.reused_ms:
        probe_ms = median(sample.reused_ms) - median(bare.reused_ms)
    if speedup is not None and fraction is not None:
        efficiency = speedup * fraction
    return {
        "full_ms": spread_of(sample.full_ms),  # all branches together
        "reused_ms": spread_of(sample.reused_ms),
        "probe_ms": probe_ms,  # that a decision takes
        "denoise_seconds": seconds,
        "compute_fraction": fraction,
        "speedup": speedup,
        "efficiency": efficiency,  # 1 if only blocks cost time
        "energy_joules": joules,
        "avg_power_watts": _ratio(joules, seconds),
    }


def _median(values: Sequence[float]) -> float | None:
    return median(values) if values else None


def _ratio(over: float | None, under: float | None) -> float | None:
    """The ratio of two measurements; None if one of them is missing or 0."""
    if over and under:
        return over / under
    return None


def _disturbance(samples: Sequence[LatencySamples]) -> str:
    """Why the seconds of these samples must not be compared, or an empty string."""
    plain_blocks = next((sample.blocks for sample in samples if sample.method == PLAIN), 0)
    timed = []
    for sample in samples:
        fraction = None
        if plain_blocks:
            fraction = sample.blocks / plain_blocks
        timed += [Timed(sample.method, seconds, fraction, sample.load) for seconds in sample.whole_seconds]
    return disturbance(timed)


def load(path: Path) -> dict[str, Any]:
    """The content of the JSON file of a latency run. Raises GalaxyDiTError for any other file.

    "rows" are of `rows_from`; "finished" is False if the run ended early.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict) or (data.get("kind"), data.get("format")) != astuple(LATENCY):
        expected = f"the JSON of a run, format {LATENCY.format}"
        raise refusal("--table", str(path), expected, "pass a file of galaxydit latency")
    content, is_unchanged = split_digest(data)
    if is_unchanged is False:
        raise refusal("--table", str(path), "the content that its digest belongs to", "restore it, or measure again")
    return content
