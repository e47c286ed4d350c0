"""The table of a latency run, as markdown or for a terminal."""

from collections.abc import Callable
from typing import Any

from galaxydit.eval.latency.latency_rows import LatencyRow, Spread, row_from


def cells(row: LatencyRow, *, quartiles: bool = True) -> tuple[str, ...]:
    """One row as text: empty if not measured, and with a ~ if the denoise time is computed from single steps."""
    return tuple(cell(row, quartiles) for cell in COLUMNS.values())


def markdown(data: dict[str, Any]) -> str:
    """Caption and table of a run."""
    rows = [cells(row_from(row)) for row in data["rows"]]
    lines = [caption(data), "", "| " + " | ".join(HEADINGS) + " |", "|" + "---|" * 2 + "---:|" * (len(HEADINGS) - 2)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def caption(data: dict[str, Any]) -> str:
    """Device, model, size and steps, and what else was timed."""
    model, schedule, settings = data["model"], data["schedule"], data["settings"]
    text = (
        f"{data['device']['name']}, {data['date'][:10]}, torch {data['versions']['torch']}, diffusers "
        f"{data['versions']['diffusers']}: Wan {settings['model']} with random weights in {model['dtype']}, "
        f"{settings['size']}, {model['tokens']:,} tokens, {schedule['steps']} steps "
        f"of which {len(schedule['full'])} are full."
    )
    if any(not row["denoise_measured"] for row in data["rows"]):
        text += " ~ : put together from single steps, not run as a whole."
    parts = [f"{name.replace('_', ' ')} {value:.2f} s" for name, value in data["once"].items() if value is not None]
    if parts:
        text += f" Beside the denoising: {', '.join(parts)}."
    for row in data["rows"]:
        if row["note"]:
            text += f" {row['method']} ({'compiled' if row['compiled'] else 'eager'}) failed: {row['note']}."
    if not data["finished"]:
        text += " The run ended early: what is missing was not measured."
    return text


def _spread(value: Spread | None, quartiles: bool) -> str:
    if value is None:
        return ""
    digits = 2 if value.median < 100 else 1
    text = f"{value.median:.{digits}f}"
    return f"{text} ({value.low:.{digits}f} to {value.high:.{digits}f})" if quartiles else text


def _number(value: float | None, digits: int, unit: str = "") -> str:
    return "" if value is None else f"{value:.{digits}f}{unit}"


COLUMNS: dict[str, Callable[[LatencyRow, bool], str]] = {
    "method": lambda row, _: row.method,
    "blocks": lambda row, _: "compiled" if row.compiled else "eager",
    "full ms": lambda row, quartiles: _spread(row.full_ms, quartiles),
    "reused ms": lambda row, quartiles: _spread(row.reused_ms, quartiles),
    "probe ms": lambda row, _: _number(row.probe_ms, 2),
    "syncs / step": lambda row, _: _number(row.syncs_per_step, 1),
    "denoise s": lambda row, _: (
        ("" if row.denoise_measured or row.denoise_seconds is None else "~") + _number(row.denoise_seconds, 2)
    ),
    "speedup": lambda row, _: _number(row.speedup, 2, "x"),
    "compute fraction": lambda row, _: _number(row.compute_fraction, 3),
    "speedup x fraction": lambda row, _: _number(row.efficiency, 3),
    "peak GiB": lambda row, _: _number(row.peak_bytes and row.peak_bytes / 2**30, 1),
    "held MiB": lambda row, _: _number(None if row.bytes_held is None else row.bytes_held / 2**20, 1),
}
HEADINGS = tuple(COLUMNS)
