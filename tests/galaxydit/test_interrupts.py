"""Ctrl-C in a long command: one line says how far it is, and the same command goes on."""

import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from command_line import exit_code
from diffusers import DiffusionPipeline, WanPipeline

from galaxydit.eval.jobs import maker
from galaxydit.pipelines.interrupts import answering_interrupts
from galaxydit.pipelines.runs.store import Store

SMALL = ["--height", "32", "--width", "32", "--frames", "5", "--steps", "10", "--guidance", "3"]


@pytest.fixture(autouse=True)
def interrupts_are_heard() -> Any:
    """A SIGINT raises KeyboardInterrupt, also where the test run itself ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt_after(commits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Send a SIGINT once this many units are done."""
    original, done = Store.commit, []

    def commit(self: Store, *arguments: Any) -> Any:
        done.append(original(self, *arguments))
        if len(done) > commits:
            signal.raise_signal(signal.SIGINT)
        return done[-1]

    monkeypatch.setattr(Store, "commit", commit)


@pytest.mark.parametrize("command", ["calibrate", "compare"])
def test_an_interrupt_says_how_far_a_long_command_is(
    command: str, tiny_wan_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("a red ball\na blue ball\na green ball\na white ball\n", encoding="utf-8")
    shared = [command, "--model", tiny_wan_folder, "--prompts", prompts, *SMALL]
    if command == "calibrate":
        arguments = [*shared, "--out", tmp_path / "mine.json"]
    else:
        (tmp_path / "tuning.txt").write_text("a grey square\n", encoding="utf-8")
        arguments = [*shared, "--calibration", tmp_path / "tuning.txt", "--out", tmp_path / "out"]
        arguments += ["--tune-prompts", "1", "--methods", "uniform skip order 0", "--speedups", "2"]
    # The timing and the first sample, or a plain video, come first.
    stage, commits = {"calibrate": ("recording", 3), "compare": ("screening", 2)}[command]
    interrupt_after(commits, monkeypatch)
    assert exit_code(*arguments) == 130
    assert f"stopped, {stage}: 1 of " in (shown := capsys.readouterr().err)
    assert "done; run the same command again to continue" in shown


def misreport(number: int) -> Any:
    """A function that receives this signal, and turns the KeyboardInterrupt into an error of its own."""

    def function(*_: Any, **__: Any) -> None:
        try:
            signal.raise_signal(number)
        except KeyboardInterrupt:
            raise OSError("Unable to load weights") from None

    return function


@pytest.mark.parametrize("place", ["reading weights", "making a video"])
def test_an_interrupt_that_a_library_reports_as_its_own_error_ends_as_an_interrupt(
    place: str, tiny_wan_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    if place == "reading weights":
        monkeypatch.setattr(DiffusionPipeline, "from_pretrained", misreport(signal.SIGINT))
    else:
        monkeypatch.setattr(WanPipeline, "encode_prompt", misreport(signal.SIGINT))
    given = ["--model", tiny_wan_folder, *SMALL[:6], "--prompt", "a red ball", "--out", tmp_path / "video.mp4"]
    assert exit_code("generate", *given) == 130
    assert "error" not in capsys.readouterr().err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_within_a_unit_is_no_failure_of_the_unit(
    number: int,
    code: int,
    tiny_wan_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    (tmp_path / "prompts.txt").write_text("a red ball\n", encoding="utf-8")
    monkeypatch.setattr(maker, "encode_thumbnail", misreport(number))
    given = ["generate", "--model", tiny_wan_folder, "--prompts", tmp_path / "prompts.txt", *SMALL]
    assert exit_code(*given, "--out", tmp_path / "out") == code
    assert "stopped, 0 of 1 done; run the same command again to continue" in capsys.readouterr().err
    assert not list((tmp_path / "out" / "records").glob("*"))


def test_a_computation_that_goes_on_after_an_interrupt_is_told_of_meanwhile() -> None:
    told = threading.Event()

    def compute() -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            assert told.wait(60)

    with pytest.raises(KeyboardInterrupt), answering_interrupts(told.set, after=0.0):
        compute()


def test_nothing_is_told_of_an_interrupt_that_stops_the_work_at_once() -> None:
    told = threading.Event()
    with pytest.raises(KeyboardInterrupt), answering_interrupts(told.set, after=60.0):
        signal.raise_signal(signal.SIGINT)
    assert not told.is_set()
