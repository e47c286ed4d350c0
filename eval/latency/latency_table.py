"""The table of a latency run, as markdown or for a terminal. `data` is the content of the run's JSON file."""

from collections.abc import Mapping, Sequence
from typing import Any

from galaxydit.pipelines.disturbance import marked
from galaxydit.pipelines.table import Table

COLUMNS = {  # by heading: field of a row, divisor that converts it to the heading's unit, format
    "full ms": ("full_ms", 1, "{:.2f}"),
    "reused ms": ("reused_ms", 1, "{:.2f}"),
    "probe ms": ("probe_ms", 1, "{:.2f}"),
    "syncs / step": ("syncs_per_step", 1, "{:.1f}"),
    "denoise s": ("denoise_seconds", 1, "{:.2f}"),
    "speedup": ("speedup", 1, "{:.2f}x"),
    "compute fraction": ("compute_fraction", 1, "{:.3f}"),
    "speedup x fraction": ("efficiency", 1, "{:.3f}"),
    "peak GiB": ("peak_bytes", 2**30, "{:.1f}"),
    "held MiB": ("bytes_held", 2**20, "{:.1f}"),
    "kJ": ("energy_joules", 1000, "{:.3g}"),
    "mean W": ("avg_power_watts", 1, "{:.0f}"),
}
# Headings for which a terminal of 80 columns has no room.
LEFT_OUT = ("probe ms", "syncs / step", "speedup x fraction", "held MiB", "mean W")


def markdown(data: dict[str, Any]) -> str:
    """Caption and table of a run, with quartiles."""
    return f"{caption(data)}\n\n{latency_table(data['rows'], quartiles=True).markdown()}"


def caption(data: dict[str, Any]) -> str:
    """Device, model, size and steps of a run, failed methods, and whether the run ended early."""
    model = data["model"]
    schedule = data["schedule"]
    settings = data["settings"]
    text = (
        f"{data['device']['name']}, {data['date'][:10]}, torch {data['versions']['torch']}, diffusers "
        f"{data['versions']['diffusers']}: Wan {settings['model']} with random weights in {model['dtype']}, "
        f"{settings['size']}, {model['tokens']:,} tokens, {schedule['steps']} steps "
        f"of which {len(schedule['full'])} are full."
    )
    for row in data["rows"]:
        if row["note"]:
            text += f" {label(row['method'], row['compiled'])} failed: {row['note']}."
    reasons = dict.fromkeys(row.get("disturbance") for row in data["rows"])  # eager and compiled rows have one each
    for why in reasons:
        if why:
            text += f" Other work disturbed the run, so do not compare its seconds: {why}."
    if not data["finished"]:
        text += " The run ended early: what is missing was not measured."
    return text


def label(method: str, compiled: bool) -> str:
    return f"{method}, compiled" if compiled else method


def latency_table(rows: Sequence[Mapping[str, Any]], *, quartiles: bool = False) -> Table:
    """The table without columns that nothing was measured for.

    With `quartiles`, cells show medians and quartiles; without them, for a terminal, `LEFT_OUT` is missing.
    """
    cells = []
    for row in rows:
        texts = {}
        for heading, (field, unit, form) in COLUMNS.items():
            texts[heading] = _cell(row.get(field), unit, form, quartiles)
        for heading in ("speedup", "speedup x fraction"):
            texts[heading] = marked(texts[heading], row.get("disturbance", ""))
        cells.append({"method": label(row["method"], row["compiled"]), **texts})
    empty = [heading for heading in COLUMNS if not any(row[heading] for row in cells)]
    return Table.of(cells, empty if quartiles else [*empty, *LEFT_OUT])


def _cell(value: Any, unit: float, form: str, quartiles: bool) -> str:
    if value is None:
        return ""
    if not isinstance(value, dict):
        return _digits(form.format(value / unit))
    form = "{:.1f}"
    if value["median"] < 100 * unit:
        form = "{:.2f}"
    middle = _digits(form.format(value["median"] / unit))
    if not quartiles:
        return middle
    low = _digits(form.format(value["low"] / unit))
    high = _digits(form.format(value["high"] / unit))
    return f"{middle} ({low} to {high})"


def _digits(text: str) -> str:
    """A formatted number without exponent."""
    if "e+" in text:
        return f"{float(text):,.0f}"
    return text
