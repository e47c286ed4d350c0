import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from galaxydit.cli import main


def run(*arguments: str | Path) -> int:
    """The exit code of the command line."""
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    return stopped.value.code or 0


def test_report_and_export_write_their_files_into_the_run(
    run_of: Callable[..., Path], capsys: pytest.CaptureFixture
) -> None:
    root = run_of(["a"])
    assert run("eval", "report", root) == 0
    assert run("eval", "export", root) == 0
    assert capsys.readouterr().out.split() == [
        str(root / name) for name in ("report.html", "results.csv", "results.parquet")
    ]
    assert "video-0" in (root / "report.html").read_text()
    assert run("eval", "report", root, "--no-embed") == 0
    assert "video-0" not in (root / "report.html").read_text()


def test_a_folder_that_is_no_run_is_one_red_line(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert run("eval", "export", tmp_path) == 2
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
