"""`galaxydit latency`: what it refuses on this machine, what its table shows, and how failures are told."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import exit_code

from galaxydit.cli import _without_traceback
from galaxydit.eval.latency.latency_run import LatencyRun
from galaxydit.eval.latency.latency_settings import METHODS
from galaxydit.eval.latency.timed_methods import METHODS as TIMED_METHODS


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_device_that_the_machine_lacks_is_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("latency", "--device", "cuda") == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("error: --device='cuda' is not allowed: expected one that this machine has (")


@pytest.mark.parametrize("turns", [0, 1])
def test_a_run_that_is_stopped_says_how_to_see_what_it_has(
    turns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def stop(run: LatencyRun, out: Path, on_turn: Callable[[int, int], None]) -> None:
        for done in range(turns):
            on_turn(done + 1, 2)
        raise KeyboardInterrupt

    monkeypatch.setattr(LatencyRun, "measure", stop)
    assert exit_code("latency", "--device", "cpu", "--out", str(tmp_path / "run.json")) == 130
    finished = f"stopped; `galaxydit latency --table {tmp_path / 'run.json'}` shows the finished turns"
    expected = finished if turns else "stopped before the first turn, so nothing was written"
    assert expected in capsys.readouterr().err


def test_the_names_that_are_offered_are_those_that_exist() -> None:
    assert set(METHODS) == set(TIMED_METHODS)


def test_a_logged_failure_such_as_of_a_compilation_is_one_line() -> None:
    try:
        raise RuntimeError("backend\nfailed")
    except RuntimeError as error:
        info = (RuntimeError, error, error.__traceback__)
    record = logging.LogRecord("x", logging.ERROR, "x.py", 1, "%s failed", ("plain",), info)
    assert _without_traceback(record)
    assert (record.getMessage(), record.exc_info) == ("plain failed: RuntimeError: backend failed", None)


def test_a_run_in_which_a_method_failed_does_not_end_well(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def measure(run: LatencyRun, out: Path, on_turn: Callable[[int, int], None]) -> dict[str, Any]:
        data = {"rows": [{"note": "RuntimeError: out of order"}]}
        out.write_text(json.dumps(data))
        return data

    monkeypatch.setattr(LatencyRun, "measure", measure)
    assert exit_code("latency", "--device", "cpu", "--json", "--out", str(tmp_path / "run.json")) == 1
