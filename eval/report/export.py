"""Write a run as tables: one row for each unit that is done or failed, with the same columns for every run."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.jobs.costs import COSTS
from galaxydit.eval.metrics import METRICS
from galaxydit.eval.report.read_run import Run
from galaxydit.eval.report.summary import values_of
from galaxydit.files import replacing
from galaxydit.pipelines import table
from galaxydit.pipelines.written_by import MARK

# Names and Parquet types. Every registered metric has a column, so that tables of two runs can be concatenated.
COLUMNS = {
    "unit": "string",
    "prompt_index": "int64",
    "prompt": "string",
    "seed": "uint64",
    "sample": "int64",
    **dict.fromkeys(("variant", "status"), "string"),
    "attempts": "int64",
    "error": "string",
    **dict.fromkeys((*(cost.key for cost in COSTS), *METRICS, "denoise_joules", "avg_power_watts"), "float64"),
    "energy_note": "string",
    **dict.fromkeys(("steps", "reused_steps", "frames", "height", "width"), "int64"),
    **dict.fromkeys(("video", "video_sha256", "sound", "frames_sha256", "device", "worker", "finished_at"), "string"),
}


def write_csv(run: Run, path: Path) -> Path:
    """Write UTF-8 CSV (RFC 4180) as `table.write_csv` does."""
    return table.write_csv(path, COLUMNS, _rows(run))


def write_parquet(run: Run, path: Path) -> Path:
    """Write Apache Parquet, absent values as null. Raises GalaxyDiTError without pyarrow."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise GalaxyDiTError(
            f"{path.name} needs pyarrow, which is not installed: pip install 'galaxydit[report]', or leave the file "
            "out with --no-parquet"
        ) from error
    with replacing(path) as partial, partial.open("wb") as file:  # pyarrow's own errors have the temporary name
        schema = pyarrow.schema(COLUMNS, {"generator": MARK})
        parquet.write_table(pyarrow.Table.from_pylist(list(_rows(run)), schema), file)
    return path


def _rows(run: Run) -> Iterator[dict[str, Any]]:
    for record in run.records:
        row = {name: getattr(record, name, None) for name in COLUMNS}
        row |= values_of(run, record)
        row["error"] = record.reason or None
        row["steps"] = record.settings.get("steps") if record.settings else None
        row["reused_steps"] = record.report.get("reused_steps") if record.report else None
        if record.shape is not None:
            row["frames"], row["height"], row["width"] = record.shape[:3]
        yield row
