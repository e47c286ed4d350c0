"""The rows of a latency run: from measurements to JSON data, and back from the JSON file.

A method is a way to denoise, "plain" the one without acceleration. A full step runs all blocks of the transformer, a
reused step reuses earlier outputs.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from galaxydit.errors import refusal
from galaxydit.pipelines.disturbance import PLAIN, Timed, disturbance

KIND = "galaxydit latency"
FORMAT = 1
KEPT = ("method", "compiled", "syncs_per_step", "peak_bytes", "bytes_held", "note")  # of `Samples` in a row


@dataclass
class Samples:
    """Measurements of one method so far. A trajectory is one run of all denoising steps.

    Attributes:
        method: name of the method, such as "plain" or "SeaCache".
        compiled: whether torch.compile compiled the blocks.
        full_ms, reused_ms: milliseconds of each full and of each reused step.
        whole_seconds: seconds of each trajectory.
        joules: joules of each trajectory, from the device's energy counter; empty without a counter.
        blocks: block evaluations of a trajectory, both guidance branches together; 0 if not counted.
        syncs_per_step: synchronizations of the host with the device, mean over the steps up to the first full step
            after a reused one; None if not measured.
        peak_bytes: peak memory of the device, weights included; None if not measured.
        bytes_held: bytes that the method keeps between calls; None if not measured.
        note: the error of a method that failed, else None.
    """

    method: str
    compiled: bool
    full_ms: list[float] = field(default_factory=list)
    reused_ms: list[float] = field(default_factory=list)
    whole_seconds: list[float] = field(default_factory=list)
    joules: list[float] = field(default_factory=list)
    blocks: int = 0
    syncs_per_step: float | None = None
    peak_bytes: int | None = None
    bytes_held: int | None = None
    note: str | None = None


def spread_of(values: Sequence[float]) -> dict[str, float] | None:
    """Dict of "median", "low" and "high" (lower and upper quartile) and "count" of the values; None without values."""
    if not values:
        return None
    low, middle, high = np.percentile(values, [25, 50, 75]).tolist()
    return {"median": middle, "low": low, "high": high, "count": len(values)}


def rows_from(samples: Sequence[Samples]) -> list[dict[str, Any]]:
    """One row for each of the samples, in their order, as JSON data; a value that was not measured is None.

    A row has the fields method, compiled, syncs_per_step, peak_bytes, bytes_held and note of `Samples`, and these:
        full_ms, reused_ms: milliseconds of one full or reused step, all guidance branches together, as a dict with
            "median", "low" and "high" (quartiles) and "count".
        probe_ms: milliseconds that the decision to reuse takes: median reused step of the method, minus that of the
            method with the same name and ", no proxy", for which the full steps are fixed; None without such a method.
        denoise_seconds: seconds of a trajectory, median.
        compute_fraction: block evaluations of a trajectory / those of a plain trajectory, counted.
        speedup: denoise_seconds of the plain method / of this method, both eager or both compiled.
        efficiency: speedup x compute_fraction; 1 if only blocks cost time.
        disturbance: why the seconds of the eager, or of the compiled, methods must not be compared; empty if nothing
            shows that.
        energy_joules: joules of a trajectory, median; None without an energy counter.
        avg_power_watts: energy_joules / denoise_seconds; None without an energy counter.
    """
    by_name = {(sample.method, sample.compiled): sample for sample in samples}
    unmeasured = Samples("", False)
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
            "full_ms": spread_of(sample.full_ms),
            "reused_ms": spread_of(sample.reused_ms),
            "probe_ms": median(sample.reused_ms) - median(bare.reused_ms) if has_probe else None,
            "denoise_seconds": seconds,
            "compute_fraction": fraction,
            "speedup": speedup,
            "efficiency": speedup * fraction if speedup and fraction else None,
            "disturbance": disturbed[sample.compiled],
            "energy_joules": joules,
            "avg_power_watts": joules / seconds if joules is not None and seconds else None,
        }
        rows.append({name: getattr(sample, name) for name in KEPT} | row)
    return rows


def _disturbance(samples: Sequence[Samples]) -> str:
    whole = next((sample.blocks for sample in samples if sample.method == "plain"), 0)
    return disturbance(
        [
            Timed(PLAIN if each.method == "plain" else each.method, seconds, each.blocks / whole if whole else None)
            for each in samples
            for seconds in each.whole_seconds
        ]
    )


def load(path: Path) -> dict[str, Any]:
    """The content of the JSON file of a latency run; raises GalaxyDiTError for any other file.

    Keys:
        "kind", "format": KIND and FORMAT.
        "date": ISO 8601, UTC.
        "device": dict of "name", "type" ("cuda" or "cpu"), "threads" (of PyTorch) and "clock" (what measured the time).
        "versions": version by name of the package.
        "settings": the fields of `LatencySettings`, the options of `galaxydit latency`.
        "model": the fields of `Preset` (numbers of blocks, heads and so on), "tokens" of the video, and "dtype".
        "schedule": "steps", the number of steps, and "full", the indices of the full steps, from 0.
        "rows": a dict for each method, eager or compiled, with its milliseconds of full and reused steps, speedup,
            joules and memory; `rows_from` lists the keys. "predicted_denoise_s" and "predicted_joules", the predicted
            seconds and joules of a trajectory, are there only if eval/cost can predict the GPU and the model.
        "finished": False if the run ended early.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict) or data.get("kind") != KIND or data.get("format") != FORMAT:
        raise refusal("--table", str(path), f"the JSON of a run, format {FORMAT}", "pass a file of galaxydit latency")
    return data
