"""Whatever a command is given, it ends with a word and with what to do. `fuzz.py` tries more."""

import importlib.util
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def load(path: Path, name: str) -> object:
    spec = importlib.util.spec_from_file_location(name, path)
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_no_command_ends_with_a_traceback_or_without_a_cure(tiny_wan_folder: Path, tmp_path: Path) -> None:
    fuzz = load(HERE / "fuzz.py", "galaxydit_fuzz")
    reports = load(HERE.parent / "eval" / "report" / "conftest.py", "galaxydit_fuzz_runs")
    run = reports.make_run(tmp_path / "run", ["a cat"], variants={"baseline": 1.0, "galaxydit-2x": 2.0})
    assert fuzz.faults(24, 0, run, tiny_wan_folder) == []


@pytest.mark.parametrize(
    "fault", [(RuntimeError, "x"), (2, "error: no"), (0, "\x1b]0;pwn"), (1, "Traceback (most recent")]
)
def test_a_bad_ending_is_recognised(fault: tuple[object, str]) -> None:
    assert load(HERE / "fuzz.py", "galaxydit_fuzz").fault_of(*fault)
