"""No command replaces a file that galaxydit did not write, and each says so before a model is loaded."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from galaxydit.cli import main
from galaxydit.commands.options import ModelOptions
from galaxydit.pipelines.written_by import LATENCY, write_own_json
from galaxydit.profiles.profile_registry import FOLDER

PROMPT = ["--prompt", "a red ball moves left over a plain background"]
GENERATE = ["generate", "--model", "wan-tiny", *PROMPT]
CALIBRATE = ["calibrate", "--model", "wan-tiny"]
COMPARE = ["compare", "--prompts", "1", "--speedups", "2", "--methods", "galaxydit"]
WRITTEN = {
    "a.mp4": [*GENERATE, "--out", "a.mp4"],
    "record.json": [*GENERATE, "--out", "b.mp4", "--no-accelerate", "--record", "record.json"],
    "prompts/results.csv": ["generate", "--model", "wan-tiny", "--prompts", "prompts.txt", "--out", "prompts"],
    "profile.json": [*CALIBRATE, "--out", "profile.json"],
    "report/report.html": [*CALIBRATE, "--out", "b.json", "--report", "report"],
    "report/ranking.png": [*CALIBRATE, "--out", "b.json", "--report", "report"],
    "videos/seed-3-plain.mp4": [*CALIBRATE, "--out", "b.json", "--save-videos", "videos"],
    "latency.json": ["latency", "--out", "latency.json"],
    **{
        f"run/{name}": ["validate", "--model", "wan-tiny", "--prompts", "1", "--out", "run"]
        for name in (*("validation.md", "validation.json", "report.html"),)
    },
    **{
        f"comparison/{name}": [*COMPARE, "--out", "comparison"]
        for name in (*("results.json", "table.md", "pareto.png", "side-by-side-2x.mp4"),)
    },
    **{
        f"demo/{name}": ["demo", "--out", "demo"]
        for name in (
            *(
                "side-by-side.mp4",
                "side-by-side.png",
                "baseline.mp4",
                "accelerated.mp4",
                "decisions.png",
                "report.json",
                "baseline.flac",
                "accelerated.flac",
                "sound.png",
            ),
        )
    },
}


class LoadedError(ValueError):
    pass


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, in which no model is loaded and nothing is timed."""

    def load(*_: Any, **__: Any) -> None:
        raise LoadedError("the work begins")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ModelOptions, "load", load)
    for place in (
        "commands.compare_command.job_keys",
        "commands.validate_command.show_plan",
        "commands.generate_command.make_videos",
    ):
        monkeypatch.setattr(f"galaxydit.{place}", load)
    monkeypatch.setattr("galaxydit.eval.latency.latency_run.LatencyRun.__init__", load)
    (tmp_path / "prompts.txt").write_text(f"{PROMPT[1]}\n", encoding="utf-8")
    return tmp_path


def refused(arguments: list[str], capsys: pytest.CaptureFixture) -> str:
    """What the command says, which has to end as for bad input."""
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    return " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("name", WRITTEN)
def test_a_file_of_the_user_stops_the_command_before_its_work_unless_forced(
    name: str, folder: Path, capsys: pytest.CaptureFixture
) -> None:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("mine")
    said = refused(WRITTEN[name], capsys)
    assert "a new file, or one that galaxydit wrote and nobody changed" in said
    assert path.name in said
    assert "--force" in said
    assert "the work begins" in refused([*WRITTEN[name], "--force"], capsys)
    assert path.read_text() == "mine"


def _newer(profile: dict[str, Any]) -> dict[str, Any]:
    return profile | {"schema_version": profile["schema_version"] + 1, "new_field": "hours of verification"}


def _edited(profile: dict[str, Any]) -> dict[str, Any]:
    return profile | {"name": "renamed by hand"}


@pytest.mark.parametrize("change", [_newer, _edited, lambda _: {"my": "experiments"}, lambda _: ["rows"]])
def test_calibrate_keeps_profiles_that_it_did_not_write_as_they_are(
    change: Callable[[dict[str, Any]], Any], folder: Path, capsys: pytest.CaptureFixture
) -> None:
    shipped = json.loads((FOLDER / "wan-tiny.json").read_text())
    path = folder / "profile.json"
    path.write_text(json.dumps(shipped))
    assert "the work begins" in refused([*CALIBRATE, "--out", "profile.json"], capsys)
    path.write_text(json.dumps(change(shipped)))
    before = path.read_bytes()
    assert "--force" in refused([*CALIBRATE, "--out", "profile.json"], capsys)
    assert path.read_bytes() == before


def test_json_of_one_command_is_kept_from_another(folder: Path, capsys: pytest.CaptureFixture) -> None:
    write_own_json(folder / "latency.json", LATENCY, {"rows": []})
    assert "the work begins" in refused(["latency", "--out", "latency.json"], capsys)
    assert "--force" in refused([*CALIBRATE, "--out", "latency.json"], capsys)
    (folder / "profile.json").write_bytes((FOLDER / "wan-tiny.json").read_bytes())
    assert "--force" in refused(["latency", "--out", "profile.json"], capsys)
