"""The program that times the README's commands, with the commands replaced."""

import shlex
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from galaxydit.cli import app
from galaxydit.eval.measure_commands import CHAIN, SmallerVideos, commands_section, measure

SMALL = "--width 32 --height 32 --frames 5 --steps 10"
CONDITIONS = {"device": "a processor", "cores": 2}


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The commands that were run."""
    commands: list[str] = []

    def run(arguments: list[str], **_: Any) -> None:
        if "fails" in arguments:
            raise subprocess.CalledProcessError(1, arguments)
        commands.append(shlex.join(arguments[3:]))

    monkeypatch.setattr(subprocess, "run", run)
    return commands


def test_a_command_that_is_measured_is_not_run_again_and_a_changed_one_takes_the_later_ones_along(
    ran: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, out = ["demo", "calibrate", "generate"], tmp_path / "commands.json"
    measure(names[:1], tmp_path, out, SmallerVideos(), CONDITIONS)
    measure(names, tmp_path, out, SmallerVideos(), CONDITIONS)
    assert [command.split()[0] for command in ran] == names
    monkeypatch.setitem(CHAIN, "calibrate", "calibrate --model other --out wan-tiny.json")
    measure(names, tmp_path, out, SmallerVideos(), CONDITIONS)
    assert [command.split()[0] for command in ran[3:]] == names[1:]
    measure(names, tmp_path, out, SmallerVideos(), CONDITIONS | {"cores": 4})
    assert len(ran) == 8


def test_a_command_that_fails_is_not_recorded(ran: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CHAIN, "calibrate", "calibrate fails")
    out = tmp_path / "commands.json"
    with pytest.raises(subprocess.CalledProcessError):
        measure(["demo", "calibrate"], tmp_path, out, SmallerVideos(), CONDITIONS)
    section = commands_section(tmp_path, tmp_path / "README.md")
    assert "Measured on a processor, 2 cores" in section
    assert "`galaxydit demo`" in section
    assert "calibrate" not in section


@pytest.mark.parametrize("sizes", ["", SMALL])
def test_each_command_of_the_chain_exists_with_its_options(sizes: str) -> None:
    root: Any = get_command(app)
    for name in CHAIN:
        words = shlex.split(SmallerVideos(sizes).command(name))
        command = root
        for word in name.split():
            command = command.commands[word]
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known, name


def test_the_job_of_a_trial_has_its_sizes() -> None:
    assert tomllib.loads(SmallerVideos().job)["steps"] == 50
    small = tomllib.loads(SmallerVideos(SMALL).job)
    assert (small["steps"], small["width"], small["variants"]["half"]["steps"]) == (10, 32, 5)
