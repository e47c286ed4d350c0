"""A run as tables: one row a unit, in columns that keep their order."""

import csv
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.jobs.record import VideoRecord
from galaxydit.eval.metrics import METRICS
from galaxydit.eval.report.run import Run
from galaxydit.eval.report.summary import SPEEDUPS, values_of
from galaxydit.files import replacing

# Every registered metric has its column, measured or not, so that the files of two runs can be put together.
COLUMNS: dict[str, type] = {
    "unit": str,
    "prompt_index": int,
    "prompt": str,
    "seed": int,
    "sample": int,
    "variant": str,
    "status": str,
    "attempts": int,
    "error": str,
    "denoise_seconds": float,
    "end_to_end_seconds": float,
    **dict.fromkeys(SPEEDUPS, float),
    "compute_fraction": float,
    **dict.fromkeys(METRICS, float),
    "steps": int,
    "reused_steps": int,
    "frames": int,
    "height": int,
    "width": int,
    "video": str,
    "video_sha256": str,
    "frames_sha256": str,
    "device": str,
    "worker": str,
    "finished_at": str,
}
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def table_rows(run: Run) -> list[dict[str, Any]]:
    """One row a unit with all of `COLUMNS`; None where a unit has no such value."""
    return [_row(record, run.baselines.get(record.pair)) for record in run.records]


def write_csv(run: Run, path: Path) -> Path:
    """Write UTF-8 CSV (RFC 4180): absent values are empty, infinite ones `inf`. Returns the path."""
    with replacing(path) as partial, partial.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows({name: _inert(value) for name, value in row.items()} for row in table_rows(run))
    return path


def write_parquet(run: Run, path: Path) -> Path:
    """Write Apache Parquet with the types of `COLUMNS`; absent values are null. Returns the path.

    Raises GalaxyDiTError if pyarrow is not installed.
    """
    if find_spec("pyarrow") is None:
        raise GalaxyDiTError(
            f"{path.name} needs pyarrow, which is not installed: pip install 'galaxydit[report]', or leave the file "
            "out with --no-parquet"
        )
    import pyarrow
    from pyarrow import parquet

    kinds = {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64()}
    schema = pyarrow.schema([(name, kinds[kind]) for name, kind in COLUMNS.items()])
    with replacing(path) as partial:
        parquet.write_table(pyarrow.Table.from_pylist(table_rows(run), schema), partial)
    return path


def _row(record: VideoRecord, baseline: VideoRecord | None) -> dict[str, Any]:
    values = {name: getattr(record, name, None) for name in COLUMNS}
    values |= values_of(record, baseline)
    values["error"] = record.traceback.strip().rpartition("\n")[2] if record.traceback else None
    values["steps"] = record.settings.get("steps") if record.settings else None
    values["reused_steps"] = record.report.get("reused_steps") if record.report else None
    if record.shape is not None:
        values["frames"], values["height"], values["width"] = record.shape[:3]
    return values


def _inert(value: Any) -> Any:
    """Spreadsheets take text that begins like this for a formula (owasp.org/www-community/attacks/CSV_Injection)."""
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value
