import csv
import math
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.jobs.record import VideoRecord
from galaxydit.eval.report.export import COLUMNS, write_csv, write_parquet
from galaxydit.eval.report.read_run import read_run


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_a_row_for_each_unit_in_the_order_of_the_job(
    run_of: Callable[..., Path], nasty: tuple[str, ...], tmp_path: Path
) -> None:
    rows = read_csv(write_csv(read_run(run_of(nasty, samples=2)), tmp_path / "results.csv"))
    assert list(rows[0]) == list(COLUMNS)
    assert [row["prompt"].removeprefix("'") for row in rows] == [prompt for prompt in nasty for _ in range(8)]
    assert [row["variant"] for row in rows[:4]] == ["baseline", "galaxydit-2x", "galaxydit-3x", "half-steps"]
    assert [row["sample"] for row in rows[:8:4]] == ["0", "1"]
    assert rows[0]["psnr"] == ""
    seconds = [float(row["denoise_seconds"]) for row in rows[:2]]
    assert float(rows[1]["denoise_speedup"]) == pytest.approx(seconds[0] / seconds[1])
    assert (rows[1]["steps"], rows[1]["reused_steps"], rows[1]["frames"]) == ("20", "10", "16")


def test_parquet_says_the_same_as_csv(run_of: Callable[..., Path], nasty: tuple[str, ...], tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    run = read_run(run_of(nasty))
    table = parquet.read_table(write_parquet(run, tmp_path / "results.parquet"))
    assert table.column_names == list(COLUMNS)
    as_text = [{name: "" if value is None else str(value) for name, value in row.items()} for row in table.to_pylist()]
    for row in as_text:
        row["prompt"] = row["prompt"].replace("=cmd()", "'=cmd()")  # only spreadsheets open CSV
    assert as_text == read_csv(write_csv(run, tmp_path / "results.csv"))


def test_the_largest_seed_fits_into_parquet(run_of: Callable[..., Path], tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    run = read_run(run_of(["a"]))
    run = replace(run, records=tuple(replace(record, seed=2**64 - 1) for record in run.records))
    table = parquet.read_table(write_parquet(run, tmp_path / "results.parquet"))
    assert set(table.column("seed").to_pylist()) == {2**64 - 1}


@pytest.mark.parametrize("write", [write_csv, write_parquet])
def test_an_error_names_the_table_and_no_temporary_file(run_of: Callable[..., Path], write: Callable) -> None:
    if write is write_parquet:
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    with pytest.raises(OSError, match=r"results'$") as raised:  # /proc takes no file from anyone
        write(read_run(run_of(["a"])), Path("/proc/results"))
    assert ".results." not in str(raised.value)


@pytest.mark.parametrize("prompt", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"])
def test_no_cell_is_a_formula(run_of: Callable[..., Path], tmp_path: Path, prompt: str) -> None:
    rows = read_csv(write_csv(read_run(run_of([prompt])), tmp_path / "results.csv"))
    assert rows[0]["prompt"] == f"'{prompt}"


def test_columns_stay_where_nothing_was_measured(run_of: Callable[..., Path], tmp_path: Path) -> None:
    path = write_csv(read_run(run_of(["a"], lambda record: replace(record, metrics={}))), tmp_path / "results.csv")
    assert list(read_csv(path)[0]) == list(COLUMNS)


def test_infinite_and_failed_units_keep_their_row(
    run_of: Callable[..., Path], failing: Callable[[VideoRecord], VideoRecord], tmp_path: Path
) -> None:
    def change(record: VideoRecord) -> VideoRecord:
        equal = replace(record, metrics={"psnr": math.inf})
        return failing(record) if record.variant == "half-steps" else equal

    rows = read_csv(write_csv(read_run(run_of(["a"], change)), tmp_path / "results.csv"))
    assert rows[1]["psnr"] == "inf"
    assert rows[3]["status"] == "failed"
    assert rows[3]["error"].startswith("RuntimeError: out of memory")
    assert rows[3]["denoise_seconds"] == ""


def test_half_a_surrogate_pair_can_be_written(run_of: Callable[..., Path], tmp_path: Path) -> None:
    def break_prompt(record: VideoRecord) -> VideoRecord:
        return replace(record, worker="node \ud83d")

    run = read_run(run_of(["a"], break_prompt))
    assert read_csv(write_csv(run, tmp_path / "results.csv"))[0]["worker"] == "node ?"
    write_parquet(run, tmp_path / "results.parquet")


def test_an_interrupted_write_leaves_the_old_file(
    run_of: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = read_run(run_of(["a"]))
    path = tmp_path / "results.csv"
    path.write_text("old")

    def stop(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(csv.DictWriter, "writerows", stop)
    with pytest.raises(OSError, match="no space left"):
        write_csv(run, path)
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir() if each.is_file()] == ["results.csv"]


def test_without_pyarrow_the_message_says_how_to_get_it(
    run_of: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(GalaxyDiTError, match=r"pip install 'galaxydit\[report\]'"):
        write_parquet(read_run(run_of(["a"])), tmp_path / "results.parquet")
