"""The rows of a latency run: from measurements to plain data, and back from the JSON file."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from galaxydit.eval.latency.forced_steps import ForcedSteps

KIND = "galaxydit latency"
FORMAT = 1


@dataclass
class Samples:
    """Measurements of one method so far, eager or compiled.

    Attributes:
        full_ms, reused_ms: milliseconds of each step of that kind.
        whole_seconds: seconds of each whole trajectory.
        blocks_full, blocks_reused: block evaluations of a step of that kind, both branches together.
        syncs_per_step: synchronizations of the host with the device, mean over full and reused steps.
        peak_bytes: peak memory of the device, weights included.
        bytes_held: bytes that the method keeps between calls.
        note: the error of a method that failed.
    """

    method: str
    compiled: bool
    full_ms: list[float] = field(default_factory=list)
    reused_ms: list[float] = field(default_factory=list)
    whole_seconds: list[float] = field(default_factory=list)
    blocks_full: int = 0
    blocks_reused: int = 0
    syncs_per_step: float | None = None
    peak_bytes: int | None = None
    bytes_held: int | None = None
    note: str | None = None


def spread_of(values: Sequence[float]) -> dict[str, float] | None:
    """Median, quartiles and count of the values; None without values. A single value is its own quartiles."""
    if not values:
        return None
    low, _, high = quantiles(values, n=4, method="inclusive") if len(values) > 1 else (values[0],) * 3
    return {"median": median(values), "low": low, "high": high, "count": len(values)}


def rows_from(samples: Sequence[Samples], forced: ForcedSteps) -> list[dict[str, Any]]:
    """One row for each of the samples, in their order, as JSON data; None is "not measured".

    A row has these values besides those of `Samples`:
        full_ms, reused_ms: `spread_of` one step, milliseconds, all branches.
        probe_ms: reused step minus the reused step of the same method with "no proxy", milliseconds.
        denoise_seconds: seconds of the whole trajectory.
        denoise_measured: False if it is computed as full steps x full_ms + reused steps x reused_ms.
        compute_fraction: block evaluations done / block evaluations of the plain trajectory, counted.
        speedup: denoise seconds of the plain method / of this one, both eager or both compiled.
        efficiency: speedup x compute fraction; 1 if only blocks cost time.
    """
    by_name = {(sample.method, sample.compiled): sample for sample in samples}
    unmeasured = Samples("", False)
    rows = []
    for sample in samples:
        plain = by_name.get(("plain", sample.compiled), unmeasured)
        bare = by_name.get((f"{sample.method}, no proxy", sample.compiled), unmeasured)
        has_probe = bare.reused_ms and sample.reused_ms
        seconds, plain_seconds = denoise_seconds(sample, forced), denoise_seconds(plain, forced)
        fraction = _compute_fraction(sample, plain, forced)
        speedup = plain_seconds / seconds if plain_seconds and seconds else None
        rows.append(
            {
                "method": sample.method,
                "compiled": sample.compiled,
                "full_ms": spread_of(sample.full_ms),
                "reused_ms": spread_of(sample.reused_ms),
                "probe_ms": median(sample.reused_ms) - median(bare.reused_ms) if has_probe else None,
                "syncs_per_step": sample.syncs_per_step,
                "denoise_seconds": seconds,
                "denoise_measured": bool(sample.whole_seconds),
                "compute_fraction": fraction,
                "speedup": speedup,
                "efficiency": speedup * fraction if speedup and fraction else None,
                "peak_bytes": sample.peak_bytes,
                "bytes_held": sample.bytes_held,
                "note": sample.note,
            }
        )
    return rows


def denoise_seconds(sample: Samples, forced: ForcedSteps) -> float | None:
    """Seconds of the whole trajectory, measured or computed from single steps; None if a kind of step is missing."""
    if sample.whole_seconds:
        return median(sample.whole_seconds)
    full = forced.steps if sample.method == "plain" else len(forced.full)
    reused = forced.steps - full
    if not sample.full_ms or (reused and not sample.reused_ms):
        return None
    return (full * median(sample.full_ms) + (reused * median(sample.reused_ms) if reused else 0.0)) / 1000


def _compute_fraction(sample: Samples, plain: Samples, forced: ForcedSteps) -> float | None:
    if sample.method == "plain":
        return 1.0
    if not plain.blocks_full or not sample.blocks_full:
        return None
    full = len(forced.full)
    done = full * sample.blocks_full + (forced.steps - full) * sample.blocks_reused
    return done / (forced.steps * plain.blocks_full)


def load(path: Path) -> dict[str, Any]:
    """Read a run; raises ValueError for any other file."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(
            f"table={path} is not allowed: expected JSON, found none ({error}); pass a file of galaxydit latency"
        ) from error
    if not isinstance(data, dict) or data.get("kind") != KIND or data.get("format") != FORMAT:
        raise ValueError(
            f"table={path} is not allowed: expected a run of format {FORMAT}; pass a file of galaxydit latency --out"
        )
    return data
