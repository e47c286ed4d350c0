import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import exit_code

from galaxydit.eval.report.read_run import read_run


def test_report_and_export_write_their_files_into_the_run(
    run_of: Callable[..., Path], capsys: pytest.CaptureFixture
) -> None:
    root = run_of(["a"])
    assert exit_code("eval", "report", root) == 0
    assert exit_code("eval", "export", root) == 0
    shown = capsys.readouterr().out
    assert all(str(root / name) in shown for name in ("report.html", "results.csv", "results.parquet"))
    assert f"  galaxydit eval check {root} --min psnr=30" in shown
    assert "video-0" in (root / "report.html").read_text()
    assert exit_code("eval", "report", root, "--no-embed") == 0
    assert "video-0" not in (root / "report.html").read_text()


def test_a_folder_that_is_no_run_is_one_red_line(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert exit_code("eval", "export", tmp_path) == 2
    assert capsys.readouterr().err.startswith("error: ")


@pytest.mark.parametrize("command", ["status", "report", "export"])
def test_reading_a_run_needs_no_torch(run_of: Callable[..., Path], command: str) -> None:
    code = f"""
import sys
from galaxydit.cli import main
try:
    main(["eval", {command!r}, {str(run_of(["a"]))!r}])
except SystemExit as stopped:
    assert not stopped.code
assert not {{"torch", "diffusers", "ray"}} & set(sys.modules)
"""
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr


@pytest.fixture
def read_only(run_of: Callable[..., Path]) -> Iterator[Path]:
    """A finished lossless run that cannot be written."""
    root = run_of(["a"], lossless=True)
    folders = [root, *(path for path in root.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    yield root
    for folder in folders:
        folder.chmod(0o755)


def test_a_run_that_cannot_be_written_is_reported_elsewhere(read_only: Path, tmp_path: Path) -> None:
    before = sorted(read_only.rglob("*"))
    assert exit_code("eval", "report", read_only, "--out", tmp_path / "page.html", "--embed") == 0
    assert "video-0" in (tmp_path / "page.html").read_text()
    assert sorted(read_only.rglob("*")) == before, "as root, too, nothing is written into the run"


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"shape": [9]}, "result.shape"),
        ({"report": {"calls": 3}}, "result.report.calls"),
        ({"settings": {"steps": "x"}}, "result.settings.steps"),
    ],
)
def test_a_record_that_cannot_be_shown_is_named(
    run_of: Callable[..., Path], capsys: pytest.CaptureFixture, change: dict[str, Any], place: str
) -> None:
    path = min((run_of(["a"]) / "units").iterdir())
    record = json.loads(path.read_text())
    del record["digest"]  # a record of an earlier version, whose content is not checked
    path.write_text(json.dumps(record | {"result": record["result"] | change}))
    for command in ("report", "export"):
        assert exit_code("eval", command, path.parent.parent) == 2
        assert f"the record of {path.stem} is damaged: {place}" in capsys.readouterr().err


@pytest.mark.parametrize("change", [{"finished_at": "yesterday"}, {"data": {}}])
def test_a_damaged_record_hides_no_other(
    run_of: Callable[..., Path], capsys: pytest.CaptureFixture, change: dict[str, Any]
) -> None:
    path = min((run_of(["a"]) / "units").iterdir())
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert exit_code("eval", "status", path.parent.parent) == 0
    shown = capsys.readouterr().out
    assert f"{path.stem}: damaged" in shown
    assert "3 done, 0 failed, 1 remaining" in shown
    for command in ("report", "export"):
        assert exit_code("eval", command, path.parent.parent) == 0


@pytest.mark.parametrize("name", ["report.html", "results.csv", "results.parquet"])
def test_report_and_export_replace_their_own_files_and_keep_others(
    run_of: Callable[..., Path], name: str, capsys: pytest.CaptureFixture
) -> None:
    root, command = run_of(["a"]), "report" if name == "report.html" else "export"
    for _ in range(2):
        assert exit_code("eval", command, root) == 0
    (root / name).write_text("mine")
    before = {path.name: path.read_bytes() for path in root.iterdir() if path.is_file()}
    assert exit_code("eval", command, root) == 2
    assert "--force" in " ".join(capsys.readouterr().err.split())
    assert {path.name: path.read_bytes() for path in root.iterdir() if path.is_file()} == before
    assert exit_code("eval", command, root, "--force") == 0
    assert (root / name).read_bytes() != b"mine"


def test_a_flipped_digit_of_a_record_is_damage_and_older_records_count_as_not_checked(
    run_of: Callable[..., Path], capsys: pytest.CaptureFixture
) -> None:
    root = run_of(["a", "b"])
    first, second, *_ = sorted((root / "units").iterdir())
    record = json.loads(first.read_text())
    first.write_text(json.dumps(record | {"seconds": record["seconds"] + 1}))
    old = json.loads(second.read_text())
    del old["digest"]
    second.write_text(json.dumps(old))
    assert exit_code("eval", "status", root, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert "does not have the digest" in told["reasons"][first.stem]
    assert told["not_checked"] == 1
    assert read_run(root).damaged == 1
    for command in ("status", "export"):
        assert exit_code("eval", command, root) == 0
        said = capsys.readouterr()
        assert "1 records of earlier versions have no digest" in " ".join((said.out + said.err).split())
    assert exit_code("eval", "report", root) == 0
    assert "1 records of earlier versions have no digest" in (root / "report.html").read_text()
