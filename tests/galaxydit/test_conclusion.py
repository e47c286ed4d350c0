"""How commands end: next commands ready to paste, exit codes in one table, colours only where they are wanted."""

import io
import re
import shlex
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from galaxydit.cli import SECTIONS, app
from galaxydit.commands.conclusion import NextCommand, conclude, model_arguments, size_arguments
from galaxydit.commands.console import narrating
from galaxydit.commands.exit_codes import ExitCode
from galaxydit.commands.options import ModelOptions, Sizes
from galaxydit.pipelines.heartbeat import draws_live
from galaxydit.pipelines.loading_bars import without_loading_bars

ROOT = Path(__file__).parents[2]


def test_a_next_command_is_one_line_that_a_shell_reads_back(
    capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    words = ["generate", "--prompt", 'a red ball\'s "way" over $HOME', "--out", Path("a folder/ball.mp4")]
    conclude([Path("x.json")], "It means something.", NextCommand("make it", words))
    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == ["Made:", "  x.json", "It means something.", "To make it:"]
    assert shlex.split(lines[4]) == ["galaxydit", *map(str, words)]


def test_options_that_were_given_are_those_of_the_next_command() -> None:
    source = ModelOptions("wan-tiny", dtype="float32", compile=True)
    assert model_arguments(source) == ["--model", "wan-tiny", "--dtype", "float32", "--compile"]
    sizes = Sizes(num_frames=5, guidance_scale=3.0, negative_prompt="")
    assert size_arguments(sizes) == ["--frames", "5", "--guidance", "3", "--negative-prompt", ""]


def test_the_page_and_the_code_have_the_same_exit_codes() -> None:
    rows = re.findall(r"^\| (\d+) \| (.+) \|$", (ROOT / "eval" / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert [(int(code), meaning) for code, meaning in rows] == [(code.value, code.meaning) for code in ExitCode]


def test_help_lists_each_command_under_what_it_is_for() -> None:
    shown = CliRunner().invoke(app, ["--help"]).output
    assert [name for name in SECTIONS if f"\n{name}:\n" in shown] == list(SECTIONS)
    shown = CliRunner().invoke(app, ["generate", "--help"]).output
    headings = re.findall(r"^(\S[^:\n]*):$", shown, re.MULTILINE)
    assert headings[:3] == ["Options", "Model", "Images and videos that the model takes"]
    assert shown.index("Cluster:") < shown.index("--workers") < shown.index("Many videos:") < shown.index("--dry-run")


def test_forced_colours_move_no_cursor_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    assert draws_live(Console(file=io.StringIO(), force_terminal=True))
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert not draws_live(Console(file=io.StringIO()))


def test_a_stage_that_is_silent_is_said_again(capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("galaxydit.commands.console.Heartbeat", lambda tell: _Impatient(tell))
    with narrating() as tell:
        tell("loading wan-tiny")
    assert capsys.readouterr().err.splitlines() == ["loading wan-tiny", "loading wan-tiny: 0 s so far"]


class _Impatient:
    """A heartbeat that tells once, at its end."""

    def __init__(self, tell) -> None:
        self.tell = tell

    def __enter__(self) -> "_Impatient":
        return self

    def said(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self.tell(20.0)


def test_bars_of_loading_are_hidden_and_those_of_downloads_are_not() -> None:
    import diffusers
    import huggingface_hub.utils as hub
    import transformers

    loaders = (diffusers.utils.logging, transformers.utils.logging)
    before = [loader.is_progress_bar_enabled() for loader in loaders], hub.are_progress_bars_disabled()
    with without_loading_bars():
        assert not any(loader.is_progress_bar_enabled() for loader in loaders)
        assert hub.are_progress_bars_disabled() == before[1]
    assert ([loader.is_progress_bar_enabled() for loader in loaders], hub.are_progress_bars_disabled()) == before
