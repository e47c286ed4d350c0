import json
from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest
from command_line import exit_code

import galaxydit.calibration
from galaxydit.calibration.calibration import Calibration
from galaxydit.calibration.prompt_files import read_prompts
from galaxydit.eval.validate.validation_job import validation_prompts
from galaxydit.profiles.profile_registry import load_profile
from galaxydit.profiles.schema import Profile

SMALL = ["--height", "32", "--width", "32", "--frames", "5", "--steps", "10", "--guidance", "3"]


def test_calibrate_writes_profile_and_report_and_shows_both(
    tiny_wan_folder: Path, prompts: list[str], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    (tmp_path / "prompts.txt").write_text("\n\n".join(prompts))
    out, report = tmp_path / "profiles" / "mine.json", tmp_path / "report"
    options = ["--report", report, *SMALL]
    command = ["calibrate", "--model", tiny_wan_folder, "--prompts", tmp_path / "prompts.txt", "--out", out, *options]
    assert exit_code(*command) == 0
    profile = load_profile(out)
    assert profile.name == "mine"
    assert 4 <= profile.conditions.samples <= 8
    assert profile.evidence.recorded.excess_db is not None
    captured = capsys.readouterr()
    for text in (profile.recipe.proxy, "1.5x", "mine.json", "report.html", "unverified"):
        assert text in captured.out
    for text in ("recordings of 32x32 pixels and 5 frames", "plain videos:", "--budget full verifies it"):
        assert text in " ".join(captured.err.split())
    units = sorted((tmp_path / "profiles" / "mine.parts" / "units").iterdir())
    names = {path.stem.rpartition("-")[0] for path in units}
    assert names == {"timing", "check", *(f"sample-{index:04d}" for index in range(profile.conditions.samples))}
    assert all("\n" not in path.read_text().strip() for path in units)
    assert json.loads(out.read_text())["evidence"]["seconds"]["step"] > 0

    assert exit_code(*command, "--budget", "full") == 0  # goes on
    verified = load_profile(out)
    assert all(row.prompts == 2 for row in verified.evidence.verifications)
    assert verified.conditions.samples >= 8
    again = sorted((tmp_path / "profiles" / "mine.parts" / "units").iterdir())
    assert set(units) <= set(again)


def test_the_plugin_brings_prompts_and_captions_for_the_embedded_model(
    tiny_wan_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calibrated = []

    def stop(pipe: object, prompts: list[str], **_: object) -> None:
        calibrated[:] = prompts
        raise ValueError("enough")

    monkeypatch.setattr("galaxydit.calibration.calibration.calibrate", stop)
    shipped, out = files(galaxydit.calibration) / "prompts", tmp_path / "mine.json"
    for model, name in (("wan-tiny", "wan-tiny.txt"), (tiny_wan_folder, "default.txt")):
        assert exit_code("calibrate", "--model", model, "--out", out) == 2
        assert calibrated == (shipped / name).read_text().splitlines()
    assert set(calibrated).isdisjoint(validation_prompts())


def test_a_lesser_profile_never_replaces_the_one_at_out(
    drafted: Profile,
    tiny_wan_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    def made(pipe: object, prompts: object, *, on_profile: Callable, **_: object) -> Calibration:
        on_profile(drafted)
        return Calibration(drafted, (), (), {})

    monkeypatch.setattr("galaxydit.calibration.calibration.calibrate", made)
    rows = tuple(replace(row, prompts=8, psnr_db=30.0) for row in drafted.evidence.verifications)
    verified = replace(drafted, evidence=replace(drafted.evidence, verifications=rows))
    fewer = replace(drafted, conditions=replace(drafted.conditions, samples=1))
    out = tmp_path / "mine.json"
    for before, after in ((verified, verified), (fewer, drafted), (drafted, drafted)):
        before.save(out)
        assert exit_code("calibrate", "--model", tiny_wan_folder, "--out", out) == 0
        assert load_profile(out) == after
        stays = f"{out} stays, because it is better than this profile, {drafted.basis}; pass another --out"
        captured = capsys.readouterr()
        assert (stays in " ".join(captured.err.split())) == (before is verified)
        assert (f"  {out}" in captured.out.splitlines()) == (before is not verified)


def test_a_profile_of_another_model_at_out_is_refused_before_anything_is_computed(
    drafted: Profile,
    tiny_wan_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    monkeypatch.setattr("galaxydit.calibration.calibration.calibrate", None)  # not called
    out = tmp_path / "mine.json"
    other = replace(drafted.model, weights=tuple(weight + 1 for weight in drafted.model.weights))
    replace(drafted, model=other).save(out)
    before = out.read_bytes()
    assert exit_code("calibrate", "--model", tiny_wan_folder, "--out", out) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"--out={str(out)!r} is not allowed" in said
    assert "its weights are those of another checkpoint" in said
    assert "pass another --out" in said
    assert out.read_bytes() == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--out", "a.txt"], "--out"),
        (["--prompts", "/no/such"], "/no/such"),
        (["--budget", "much"], "--budget"),
        (["--budget", "0"], "--budget"),
    ],
)
def test_bad_options_are_refused(change: list[str], message: str, capsys: pytest.CaptureFixture) -> None:
    given = {"--model": "wan-tiny", "--prompts": "p.txt", "--out": "a.json"}
    given |= dict([change])
    assert exit_code("calibrate", *(word for pair in given.items() for word in pair)) == 2
    assert message in capsys.readouterr().err


def test_a_file_without_prompts_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "empty.txt").write_text("\n \n")
    assert exit_code("calibrate", "--model", "wan-tiny", "--prompts", tmp_path / "empty.txt", "--out", "a.json") == 2
    assert "holds no prompt; write one a line" in capsys.readouterr().err


def test_a_prompt_is_a_line_as_it_is_written(tmp_path: Path) -> None:
    lines = ["a cat\u2028walks", '{"prompt": "a dog", "image": "my  dog.png"}']
    (tmp_path / "prompts.txt").write_text("\n".join(lines) + "\r\n\n", encoding="utf-8")
    assert read_prompts(tmp_path / "prompts.txt") == lines
