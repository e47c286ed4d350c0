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
    disturbed = {compiled: _disturbance([s for s in samples if s.compiled == compiled]) for compiled in (False, True)}
    rows = []
    for sample in samples:
        plain = by_name.get(("plain", sample.compiled), unmeasured)
        bare = by_name.get((f"{sample.method}, no proxy", sample.compiled), unmeasured)
        has_probe = bare.reused_ms and sample.reused_ms
        seconds = median(sample.whole_seconds) if sample.whole_seconds else None
        speedup = median(plain.whole_seconds) / seconds if plain.whole_seconds and seconds else None
        fraction = sample.blocks / plain.blocks if plain.blocks and sample.blocks else None
        joules = median(sample.joules) if sample.joules else None
        row = {
            "full_ms": spread_of(sample.full_ms),  # all branches together
            "reused_ms": spread_of(sample.reused_ms),
            # that a decision takes
            "probe_ms": median(sample.reused_ms) - median(bare.reused_ms) if has_probe else None,
            "denoise_seconds": seconds,
            "compute_fraction": fraction,
            "speedup": speedup,
            "efficiency": speedup * fraction if speedup and fraction else None,  # 1 if only blocks cost time
            "disturbance": disturbed[sample.compiled],  # why seconds must not be compared, or empty
            "energy_joules": joules,
            "avg_power_watts": joules / seconds if joules is not None and seconds else None,
        }
        rows.append({name: getattr(sample, name) for name in KEPT} | row)
    return rows


def _disturbance(samples: Sequence[LatencySamples]) -> str:
    whole = next((sample.blocks for sample in samples if sample.method == "plain"), 0)
    timed = []
    for each in samples:
        way, fraction = PLAIN if each.method == "plain" else each.method, each.blocks / whole if whole else None
        timed += [Timed(way, seconds, fraction, each.load) for seconds in each.whole_seconds]
    return disturbance(timed)


def load(path: Path) -> dict[str, Any]:
    """The content of the JSON file of a latency run. Raises GalaxyDiTError for any other file.

    "rows" are of `rows_from`, with "predicted_denoise_s" and "predicted_joules" where eval/cost knows GPU and model;
    "finished" is False if the run ended early.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict) or (data.get("kind"), data.get("format")) != astuple(LATENCY):
        raise refusal(
            "--table", str(path), f"the JSON of a run, format {LATENCY.format}", "pass a file of galaxydit latency"
        )
    content, is_unchanged = split_digest(data)
    if is_unchanged is False:
        raise refusal("--table", str(path), "the content that its digest belongs to", "restore it, or measure again")
    return content
