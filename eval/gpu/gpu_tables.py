"""Tables of the measurements on a GPU: the newest file of `tests/gpu/measure.py`, else the runs before it."""

import json
from dataclasses import dataclass
from datetime import date
from os.path import relpath
from pathlib import Path
from statistics import fmean, median
from typing import Any

from galaxydit.pipelines.table import DASH, Table, digits

EARLIER = Path("gpu") / "pipeline-1.3B-480p-compiled-H100.json"
EARLIER_RUN = "one run, measured on 27 November 2026 at commit faf45838"
EARLIER_RUNS = "pipeline-*.json"
MEASURED = "measure-*.json"
VARIANTS = {"plain": None, "2x": 2.0, "3x": 3.0}
GIGA = 1e9
KILO = 1000.0


@dataclass(frozen=True)
class TimedPipeline:
    """A whole pipeline, plain and with the plugin.

    Each row has the fields of a `TrialResult` (seconds, joules), "peak_bytes" and "speedup", None for plain.
    """

    path: Path
    model: str
    device: str
    is_compiled: bool
    how: str  # number of runs, date and commit
    rows: tuple[dict[str, Any], ...]

    def row(self, speedup: float | None) -> dict[str, Any]:
        return next(row for row in self.rows if row["speedup"] == speedup)


def timed_pipelines(results: Path) -> list[TimedPipeline]:
    """All of them; the first is the newest measurement with a complete round, else the earlier run."""
    found = [timed for path, data in measured_files(results) if (timed := _means(path, data)) is not None]
    for path in sorted((results / "gpu").glob(EARLIER_RUNS)):
        data = json.loads(path.read_text(encoding="utf-8"))
        how = EARLIER_RUN if path == results / EARLIER else "one run"
        found.append(
            TimedPipeline(path, data["model"], data["device"], data.get("compiled", False), how, tuple(data["rows"]))
        )
    return found


def measured_files(results: Path) -> list[tuple[Path, dict[str, Any]]]:
    """The files of `tests/gpu/measure.py`, newest first, without tiny ones."""
    found = []
    for path in (results / "gpu").glob(MEASURED):
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["sessions"] and not data["settings"]["tiny"]:
            found.append((path, data))
    return sorted(found, key=lambda item: item[1]["sessions"][-1]["date"], reverse=True)


def _means(path: Path, data: dict[str, Any]) -> TimedPipeline | None:
    """The means of the complete rounds of part a; None without one."""
    rounds: dict[int, dict[str, dict[str, Any]]] = {}
    for row in _rows(data, "a"):
        if row["variant"] in VARIANTS:
            rounds.setdefault(row["round"], {})[row["variant"]] = row
    complete = [by_variant for by_variant in rounds.values() if len(by_variant) == len(VARIANTS)]
    if not complete:
        return None
    rows = []
    for variant, speedup in VARIANTS.items():
        same = [by_variant[variant] for by_variant in complete]
        rows.append(
            {
                "speedup": speedup,
                "denoise_seconds": fmean(row["seconds"]["denoising"] for row in same),
                "end_to_end_seconds": fmean(row["seconds"]["whole"] for row in same),
                "denoise_joules": _mean([row["joules"]["denoising"] for row in same]),
                "energy_per_video_joules": _mean([row["joules"]["whole"] for row in same]),
                "peak_bytes": max(row["peak_bytes"] or 0 for row in same),
            }
        )
    used = [row for by_variant in complete for row in by_variant.values()]
    how = "one round" if len(complete) == 1 else f"mean of {len(complete)} interleaved rounds"
    first = used[0]
    return TimedPipeline(
        path, first["model"], data["device"], first["compiled"], f"{how}, {_when(data, used)}", tuple(rows)
    )


def _mean(joules: list[float | None]) -> float | None:
    known = [each for each in joules if each is not None]
    return fmean(known) if len(known) == len(joules) else None


def _rows(data: dict[str, Any], part: str) -> list[dict[str, Any]]:
    return [row for row in data["rows"] if row["part"] == part and row["finished"]]


def _when(data: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """Such as "measured on 28 November 2026 at commit 0123456789ab", of the sessions of these rows."""
    sessions = [data["sessions"][index] for index in sorted({row["session"] for row in rows})]
    day = date.fromisoformat(sessions[-1]["date"][:10])
    commits = ", ".join(dict.fromkeys(session["commit"] for session in sessions))
    return f"measured on {day.day} {day:%B %Y} at commit {commits}"


def pipelines_table(results: Path, page: Path) -> str:
    """Seconds, joules and memory of whole pipelines, plain and with the plugin."""
    headings = ("pipeline", "plain / with: denoising s", "whole s", "peak GB", "denoising s", "whole s")
    rows = []
    for timed in timed_pipelines(results):
        plain = timed.row(None)
        compiled = ", compiled" if timed.is_compiled else ""
        where = f"[{timed.model}]({relpath(timed.path, page.parent)}), {timed.device}{compiled}, {timed.how}"
        for row in timed.rows:
            way = f"`speedup={row['speedup']:g}`" if row["speedup"] else "plain"
            seconds = [row["denoise_seconds"], row["end_to_end_seconds"]]
            clocks = [plain["denoise_seconds"] / seconds[0], plain["end_to_end_seconds"] / seconds[1]]
            joules = [_in(row[name], KILO) for name in ("denoise_joules", "energy_per_video_joules")]
            cells = [f"{clock:.2f}" for clock in clocks]
            cells += [f"{row['peak_bytes'] / GIGA:.2f}", *map(digits, seconds), *joules]
            rows.append([f"{where}, {way}", *cells])
    return Table((*headings, "denoising kJ", "whole kJ"), rows).markdown()


def parts_tables(results: Path, page: Path) -> str:
    """Calibration, compositions and the 14B, each where it was measured; a sentence where it was not."""
    parts = {
        "b": ("the default calibration", _calibration),
        "c": ("2x with attention backends and fp8", _compositions),
        "d": ("the 14B at 720p", _large_model),
    }
    texts, missing = [], dict.fromkeys(name for name, _ in parts.values())
    for path, data in measured_files(results):
        link = f"[{data['device']}]({relpath(path, page.parent)})"
        for part, (name, table) in parts.items():
            rows = _rows(data, part)
            if rows:
                missing.pop(name, None)
                texts.append(f"{link}, {_when(data, rows)}:\n\n{table(rows)}")
    if missing:
        texts.append(f"Not measured yet: {', '.join(missing)}.")
    return "\n\n".join(texts)


def _calibration(rows: list[dict[str, Any]]) -> str:
    cells = []
    for row in rows:
        if row["variant"] == "preparation":
            continue
        estimate = row["estimate"]
        name = f"{estimate['recordings']} recordings of the {row['model']} and the plain video that checks them"
        cells.append([f"{name}: s", digits(row["recorded_seconds"]), digits(estimate["seconds"])])
        cells.append([f"{name}: kJ", _in(row["recorded_joules"], KILO), _in(estimate["joules"], KILO)])
        cells.append(["with the timing of steps and the planning: s", digits(row["seconds"]), DASH])
        cells.append(["peak GB", _in(row["peak_bytes"], GIGA), DASH])
    return Table(("default calibration", "measured", "estimated by itself"), cells).markdown()


def _compositions(rows: list[dict[str, Any]]) -> str:
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for row in rows:
        if "addition" in row:
            found.setdefault(row["addition"], {})["plain" if row["speedup"] is None else "2x"] = row
    cells = []
    for name, by_variant in found.items():
        per_step = {}
        for variant, row in by_variant.items():
            per_step[variant] = row["seconds"]["denoising"] / row["steps"]
        plain, fast = per_step.get("plain"), per_step.get("2x")
        ratio = f"{plain / fast:.2f}" if plain and fast else DASH
        peaks = [row["peak_bytes"] for row in by_variant.values() if row["peak_bytes"]]
        cells.append([name, _in(plain, 1.0), _in(fast, 1.0), ratio, _in(max(peaks, default=None), GIGA)])
    headings = ("eager, denoising alone", "plain, s a step", "2x, s a step", "plain / 2x", "peak GB")
    return Table(headings, cells).markdown()


def _large_model(rows: list[dict[str, Any]]) -> str:
    by_variant = {row["variant"]: row for row in rows}
    cells = []
    plain, fast = by_variant.get("plain"), by_variant.get("last step reused")
    if plain is not None:
        cells.append(["plain step", digits(median(plain["milliseconds"][1:])), _in(plain["peak_bytes"], GIGA)])
    if fast is not None:
        *full, reused = fast["milliseconds"]
        cells.append(["full step with the plugin", digits(full[-1]), _in(fast["peak_bytes"], GIGA)])
        cells.append(["reused step", digits(reused), DASH])
    small = [by_variant.get(name) for name in ("small, plain", "small, full steps")]
    if all(small):
        # Each step calls the transformer for both branches; the first ones warm up.
        medians = [median(row["milliseconds"][3:]) / 2 for row in small if row]
        cells.append(["added to a call, of few tokens", digits(medians[1] - medians[0]), DASH])
    return Table(("14B at 720p, eager, both branches", "ms", "peak GB"), cells).markdown()


def _in(value: float | None, unit: float) -> str:
    return DASH if value is None else digits(value / unit)
