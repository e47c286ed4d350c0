import json
from importlib.resources import files
from pathlib import Path

import pytest

import galaxydit.calibration
from galaxydit.calibration.prompt_files import read_prompts
from galaxydit.cli import main
from galaxydit.profiles.registry import load_profile

SMALL = ["--height", "32", "--width", "32", "--frames", "5", "--steps", "10", "--guidance", "3"]


def run(*arguments: str | Path) -> int:
    """The exit code of the command line."""
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    return stopped.value.code or 0


def test_calibrate_writes_profile_and_report_and_shows_both(
    tiny_wan_folder: Path, prompts: list[str], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    (tmp_path / "prompts.txt").write_text("\n\n".join(prompts))
    out, report = tmp_path / "profiles" / "mine.json", tmp_path / "report"
    options = ["--samples", "2", "--verify", "1", "--report", report, *SMALL]
    command = ["calibrate", "--model", tiny_wan_folder, "--prompts", tmp_path / "prompts.txt", "--out", out, *options]
    assert run(*command) == 0
    profile = load_profile(out)
    assert profile.name == "mine"
    assert profile.conditions.samples == 2
    shown = capsys.readouterr().out
    for text in (profile.recipe.proxy, "1.5x", "PSNR", "mine.json", "report.html"):
        assert text in shown
    assert (report / "report.html").read_text().count("<img") == 6
    units = sorted((tmp_path / "profiles" / "mine.parts" / "units").iterdir())
    names = [path.stem.rpartition("-")[0] for path in units]
    assert names == ["choice-0000", "choice-0001", "sample-0000", "sample-0001", "seconds", "verification-0000"]
    assert all("\n" not in path.read_text().strip() for path in units)
    assert json.loads(out.read_text())["evidence"]["seconds"]["step"] > 0


def test_the_embedded_model_brings_its_prompts_and_others_need_a_file(
    tiny_wan_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    calibrated = []

    def stop(pipe: object, prompts: list[str], **_: object) -> None:
        calibrated.extend(prompts)
        raise ValueError("enough")

    monkeypatch.setattr("galaxydit.calibration.calibration.calibrate", stop)
    out = tmp_path / "mine.json"
    assert run("calibrate", "--model", "wan-tiny", "--out", out) == 2
    assert calibrated == (files(galaxydit.calibration) / "prompts" / "wan-tiny.txt").read_text().splitlines()
    assert f"prompts: the {len(calibrated)} captions for calibration that ship with wan-tiny" in capsys.readouterr().err
    assert run("calibrate", "--model", tiny_wan_folder, "--out", out) == 2
    error = capsys.readouterr().err
    assert "--prompts" in error
    assert "is needed for this model" in error


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--out", "a.txt"], "--out"),
        (["--prompts", "/no/such"], "/no/such"),
        (["--samples", "1"], "--samples"),
    ],
)
def test_bad_options_are_refused(change: list[str], message: str, capsys: pytest.CaptureFixture) -> None:
    given = {"--model": "wan-tiny", "--prompts": "p.txt", "--out": "a.json"}
    given |= dict([change])
    assert run("calibrate", *(word for pair in given.items() for word in pair)) == 2
    assert message in capsys.readouterr().err


def test_a_file_without_prompts_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "empty.txt").write_text("\n \n")
    assert run("calibrate", "--model", "wan-tiny", "--prompts", tmp_path / "empty.txt", "--out", "a.json") == 2
    assert "holds no prompt; write one a line" in capsys.readouterr().err


def test_a_prompt_is_a_line_as_it_is_written(tmp_path: Path) -> None:
    lines = ["a cat\u2028walks", '{"prompt": "a dog", "image": "my  dog.png"}']
    (tmp_path / "prompts.txt").write_text("\n".join(lines) + "\r\n\n", encoding="utf-8")
    assert read_prompts(tmp_path / "prompts.txt") == lines
