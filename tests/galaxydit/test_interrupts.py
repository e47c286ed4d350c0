"""Ctrl-C in a long command: one line says how far it is, and the same command goes on."""

import signal
from pathlib import Path
from typing import Any

import pytest

from galaxydit.cli import main
from galaxydit.eval.realism.measurements import Realism
from galaxydit.pipelines.runs.store import Store

SMALL = ["--height", "32", "--width", "32", "--frames", "5", "--steps", "10", "--guidance", "3"]


@pytest.fixture(autouse=True)
def interrupts_are_heard() -> Any:
    """A SIGINT raises KeyboardInterrupt, also where the test run itself ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def run(*arguments: str | Path) -> int:
    """The exit code of the command line."""
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    return int(stopped.value.code or 0)


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
        arguments = [*shared, "--out", tmp_path / "mine.json", "--samples", "3", "--verify", "1"]
    else:
        (tmp_path / "tuning.txt").write_text("a grey square\n", encoding="utf-8")
        arguments = [*shared, "--calibration", tmp_path / "tuning.txt", "--out", tmp_path / "out"]
        arguments += ["--tune-prompts", "1", "--methods", "uniform skip order 0", "--speedups", "2"]
    stage, commits = {"calibrate": ("recording", 2), "compare": ("screening", 1)}[command]  # costs come first
    interrupt_after(commits, monkeypatch)
    assert run(*arguments) == 130
    assert f"stopped, {stage}: 1 of " in (shown := capsys.readouterr().err)
    assert "done; the same command goes on" in shown


def test_an_interrupt_of_realism_says_where_its_finished_parts_are(
    tiny_wan_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(Realism, "residual", lambda self: signal.raise_signal(signal.SIGINT))
    (tmp_path / "prompts.txt").write_text("a red ball\n", encoding="utf-8")
    given = ["--model", tiny_wan_folder, "--prompts", tmp_path / "prompts.txt", "--out", tmp_path, *SMALL[:6]]
    assert run("realism", *given, "--parts", "residual") == 130
    expected = f"stopped, finished parts are in {tmp_path / 'realism.json'}; the same command goes on"
    assert expected in capsys.readouterr().err
