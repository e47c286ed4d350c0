"""The rows of a latency run: from measurements to plain data, and to and from JSON."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from galaxydit.eval.latency.forced_steps import ForcedSteps
from galaxydit.validation import parse

KIND = "galaxydit latency"
FORMAT = 1
AS_MEASURED = ("method", "compiled", "syncs_per_step", "peak_bytes", "bytes_held", "note")  # of a row


@dataclass
class Samples:
    """Measurements of one method so far.

    Attributes:
        full_ms, reused_ms: milliseconds of each step of that kind.
        whole_seconds: seconds of each whole trajectory.
        blocks_full, blocks_reused: block evaluations of a step of that kind, both branches together.
    """

    method: str
    compiled: bool
    full_ms: list[float] = field(default_factory=list)
    reused_ms: list[float] = field(default_factory=list)
    whole_seconds: list[float] = field(default_factory=list)
    blocks_full: float = 0.0
    blocks_reused: float = 0.0
    syncs_per_step: float | None = None
    peak_bytes: int | None = None
    bytes_held: int | None = None
    note: str | None = None


@dataclass(frozen=True)
class Spread:
    """Median and quartiles of `count` measurements."""

    median: float
    low: float
    high: float
    count: int


def spread_of(values: Sequence[float]) -> Spread | None:
    """Spread of the values; None without values. A single value is its own quartiles."""
    if not values:
        return None
    low, _, high = quantiles(values, n=4, method="inclusive") if len(values) > 1 else (values[0],) * 3
    return Spread(median(values), low, high, len(values))


@dataclass(frozen=True)
class LatencyRow:
    """One method, eager or compiled.

    Attributes:
        full_ms, reused_ms: milliseconds of one step, all branches.
        probe_ms: reused step minus the reused step of the same method without proxy, milliseconds.
        syncs_per_step: synchronizations of the host with the device, mean over full and reused steps.
        denoise_seconds: seconds of the whole trajectory.
        denoise_measured: False if it is computed as full steps x full_ms + reused steps x reused_ms.
        compute_fraction: block evaluations done / block evaluations of the plain trajectory, counted.
        speedup: denoise seconds of the plain method / of this one, both eager or both compiled.
        efficiency: speedup x compute fraction; 1 if only blocks cost time.
        peak_bytes: peak memory of the device, weights included.
        bytes_held: bytes that the method keeps between calls.
    """

    method: str
    compiled: bool
    full_ms: Spread | None
    reused_ms: Spread | None
    probe_ms: float | None
    syncs_per_step: float | None
    denoise_seconds: float | None
    denoise_measured: bool
    compute_fraction: float | None
    speedup: float | None
    efficiency: float | None
    peak_bytes: int | None
    bytes_held: int | None
    note: str | None


def rows_from(samples: Sequence[Samples], forced: ForcedSteps, without_proxy: dict[str, str]) -> list[LatencyRow]:
    """Rows in the order of the samples.

    `without_proxy` maps a method that reads a proxy to the one that does the same without.
    """
    by_name = {(sample.method, sample.compiled): sample for sample in samples}
    rows = []
    for sample in samples:
        plain = by_name.get(("plain", sample.compiled))
        seconds = denoise_seconds(sample, forced)
        plain_seconds = denoise_seconds(plain, forced) if plain else None
        fraction = _compute_fraction(sample, plain, forced)
        speedup = plain_seconds / seconds if plain_seconds and seconds else None
        bare = by_name.get((without_proxy.get(sample.method, ""), sample.compiled))
        rows.append(
            LatencyRow(
                **{name: getattr(sample, name) for name in AS_MEASURED},
                full_ms=spread_of(sample.full_ms),
                reused_ms=spread_of(sample.reused_ms),
                probe_ms=median(sample.reused_ms) - median(bare.reused_ms)
                if bare and bare.reused_ms and sample.reused_ms
                else None,
                denoise_seconds=seconds,
                denoise_measured=bool(sample.whole_seconds),
                compute_fraction=fraction,
                speedup=speedup,
                efficiency=speedup * fraction if speedup and fraction else None,
            )
        )
    return rows


def denoise_seconds(sample: Samples, forced: ForcedSteps) -> float | None:
    """Seconds of the whole trajectory, measured or computed from single steps; None if a kind of step is missing."""
    if sample.whole_seconds:
        return median(sample.whole_seconds)
    full = len(forced.full)
    if sample.method == "plain":
        full = forced.steps
    if not sample.full_ms or (full < forced.steps and not sample.reused_ms):
        return None
    reused = (forced.steps - full) * median(sample.reused_ms) if full < forced.steps else 0.0
    return (full * median(sample.full_ms) + reused) / 1000


def _compute_fraction(sample: Samples, plain: Samples | None, forced: ForcedSteps) -> float | None:
    if sample.method == "plain":
        return 1.0
    if not plain or not plain.blocks_full or not sample.blocks_full:
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


def row_from(data: dict[str, Any]) -> LatencyRow:
    """A row of a loaded run."""
    return parse(LatencyRow, data, "row", "pass a file of galaxydit latency --out")
