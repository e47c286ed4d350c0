"""`galaxydit latency`: what it refuses on this machine, what its table shows, and how failures are told."""

import logging
from io import StringIO

import pytest
import torch
from rich.console import Console

import galaxydit
from galaxydit.cli import _without_traceback, main
from galaxydit.commands.latency import METHODS, MODELS, PROXIES, build_table
from galaxydit.eval.latency.latency_rows import LatencyRow, Spread
from galaxydit.eval.latency.random_models import PRESETS
from galaxydit.eval.latency.timed_methods import METHODS as TIMED_METHODS


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_device_that_the_machine_lacks_is_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["latency", "--device", "cuda"])
    assert stopped.value.code == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("error: --device='cuda' is not allowed: expected one that this machine has (")


def test_the_names_that_are_offered_are_those_that_exist() -> None:
    assert set(MODELS) == set(PRESETS)
    assert set(METHODS) == set(TIMED_METHODS)
    assert set(PROXIES) == set(galaxydit.PROXIES)


def test_a_logged_failure_such_as_of_a_compilation_is_one_line() -> None:
    try:
        raise RuntimeError("backend\nfailed")
    except RuntimeError as error:
        info = (RuntimeError, error, error.__traceback__)
    record = logging.LogRecord("x", logging.ERROR, "x.py", 1, "%s failed", ("plain",), info)
    assert _without_traceback(record)
    assert (record.getMessage(), record.exc_info) == ("plain failed: RuntimeError: backend failed", None)


def test_no_number_is_cut_in_a_terminal_of_80_columns() -> None:
    spread = Spread(12345.6, 12345.6, 12345.6, 3)
    row = LatencyRow(
        method="galaxydit residual, no proxy",
        compiled=True,
        full_ms=spread,
        reused_ms=spread,
        probe_ms=12.34,
        syncs_per_step=12.3,
        denoise_seconds=1234.56,
        denoise_measured=False,
        speedup=12.34,
        compute_fraction=0.123,
        efficiency=0.987,
        peak_bytes=123 * 2**30,
        bytes_held=12345 * 2**20,
        note=None,
    )
    screen = StringIO()
    Console(file=screen, width=80).print(build_table([row]))
    shown = screen.getvalue()
    for number in ("12345.6", "12.3", "~1234.56", "12.34x", "0.123", "123.0", "12345.0"):
        assert number in shown
