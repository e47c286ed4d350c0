"""The table of a latency run, as markdown or for a terminal."""

from collections.abc import Callable, Mapping
from typing import Any

Row = Mapping[str, Any]
"""One of `latency_rows.rows_from`."""


def cells(row: Row, *, quartiles: bool = True) -> tuple[str, ...]:
    """One row as text: empty if not measured, and with a ~ if the denoise time is computed from single steps."""
    return tuple(cell(row, quartiles) for cell in COLUMNS.values())


def markdown(data: dict[str, Any]) -> str:
    """Caption and table of a run."""
    lines = [caption(data), "", "| " + " | ".join(COLUMNS) + " |", "|" + "---|" * 2 + "---:|" * (len(COLUMNS) - 2)]
    lines += ["| " + " | ".join(cells(row)) + " |" for row in data["rows"]]
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
    if not all(row["denoise_measured"] for row in data["rows"]):
        text += " ~ : put together from single steps, not run as a whole."
    parts = [f"{name.replace('_', ' ')} {value:.2f} s" for name, value in data["once"].items() if value is not None]
    if parts:
        text += f" Beside the denoising: {', '.join(parts)}."
    for row in data["rows"]:
        if row["note"]:
            text += f" {label(row['method'], row['compiled'])} failed: {row['note']}."
    if not data["finished"]:
        text += " The run ended early: what is missing was not measured."
    return text


def label(method: str, compiled: bool) -> str:
    """A method and how its blocks run, as text."""
    return f"{method} ({'compiled' if compiled else 'eager'})"


def _spread(spread: Mapping[str, float] | None, quartiles: bool) -> str:
    if spread is None:
        return ""
    digits = 2 if spread["median"] < 100 else 1
    text = f"{spread['median']:.{digits}f}"
    return f"{text} ({spread['low']:.{digits}f} to {spread['high']:.{digits}f})" if quartiles else text


def _number(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)


COLUMNS: dict[str, Callable[[Row, bool], str]] = {
    "method": lambda row, _: row["method"],
    "blocks": lambda row, _: "compiled" if row["compiled"] else "eager",
    "full ms": lambda row, quartiles: _spread(row["full_ms"], quartiles),
    "reused ms": lambda row, quartiles: _spread(row["reused_ms"], quartiles),
    "probe ms": lambda row, _: _number(row["probe_ms"], "{:.2f}"),
    "syncs / step": lambda row, _: _number(row["syncs_per_step"], "{:.1f}"),
    "denoise s": lambda row, _: _number(row["denoise_seconds"], "{:.2f}" if row["denoise_measured"] else "~{:.2f}"),
    "speedup": lambda row, _: _number(row["speedup"], "{:.2f}x"),
    "compute fraction": lambda row, _: _number(row["compute_fraction"], "{:.3f}"),
    "speedup x fraction": lambda row, _: _number(row["efficiency"], "{:.3f}"),
    "peak GiB": lambda row, _: _number(row["peak_bytes"] and row["peak_bytes"] / 2**30, "{:.1f}"),
    "held MiB": lambda row, _: _number(row["bytes_held"] and row["bytes_held"] / 2**20, "{:.1f}"),
}
