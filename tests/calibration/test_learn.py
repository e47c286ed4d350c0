"""A learned profile is made once, kept, found again, and never replaced by a lesser one."""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from diffusers import WanPipeline

import galaxydit
from galaxydit.calibration import learn as learning
from galaxydit.calibration.calibration import KIND, Calibration
from galaxydit.errors import DataWarning, GalaxyDiTError, ProfileWarning
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.runs import Store
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.profiles.schema import Profile, read_profile

SETTINGS = GenerationSettings(32, 32, 5, steps=12, guidance_scale=3.0)
PROMPTS = ["a red ball", "a blue box"]


@pytest.fixture(scope="module", autouse=True)
def fewest_recordings() -> Iterator[None]:
    """Two, which are as good here as four."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learning, "LEARNED", replace(learning.LEARNED, samples=(2, 2)))
        yield


@pytest.fixture(scope="module")
def learned(tiny_wan_builder: Callable[[], WanPipeline], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a learned profile and its parts, which no test may change."""
    folder = tmp_path_factory.mktemp("learned")
    galaxydit.learn(tiny_wan_builder(), PROMPTS, settings=SETTINGS, folder=folder)
    return folder


@pytest.fixture
def folder(learned: Path, tmp_path: Path) -> Path:
    """A copy of `learned`."""
    return Path(shutil.copytree(learned, tmp_path / "profiles"))


def test_it_is_made_once_and_accelerates(
    tiny_wan_pipeline: WanPipeline, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = galaxydit.learn(tiny_wan_pipeline, PROMPTS, settings=SETTINGS, folder=tmp_path)
    assert "plain videos" in capsys.readouterr().err
    (path,) = tmp_path.glob("*.json")
    assert str(path) in profile.source
    assert read_profile(path) == profile
    with galaxydit.accelerate(tiny_wan_pipeline, speedup=2, profile=profile) as acceleration:
        generate(tiny_wan_pipeline, "a cyan ball", SETTINGS, 3)
    assert acceleration.report.compute_fraction == pytest.approx(0.5, rel=0.1)
    assert "unverified" in str(acceleration.report.notes)
    with pytest.raises(GalaxyDiTError, match="--budget full"):
        galaxydit.accelerate(tiny_wan_pipeline, min_psnr=30, profile=profile)

    monkeypatch.setattr(learning, "calibrate", None)  # not called again
    assert galaxydit.learn(tiny_wan_pipeline, PROMPTS, settings=SETTINGS, folder=tmp_path) == profile


def test_plain_accelerate_never_reads_it(
    tiny_wan_pipeline: WanPipeline, calibration: Calibration, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learning, "user_data_path", lambda name: tmp_path)
    monkeypatch.setattr(learning, "calibrate", saving(calibration))
    galaxydit.learn(tiny_wan_pipeline, PROMPTS, settings=SETTINGS)
    assert [*(tmp_path / "profiles").glob("*.json")]
    with galaxydit.accelerate(tiny_wan_pipeline, speedup=2) as acceleration:
        generate(tiny_wan_pipeline, "a cyan ball", SETTINGS, 3)
    assert "a general schedule" in str(acceleration.report.notes)


def test_a_better_profile_stays_and_other_settings_have_another_file(
    tiny_wan_pipeline: WanPipeline, calibration: Calibration, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (path,) = folder.glob("*.json")
    profile = read_profile(path)
    better = replace(profile, conditions=replace(profile.conditions, samples=1))  # fewer than a finished one
    rows = tuple(replace(row, prompts=8, psnr_db=30.0) for row in profile.evidence.verifications)
    better = replace(better, evidence=replace(profile.evidence, verifications=rows))
    better.save(path)
    assert galaxydit.learn(tiny_wan_pipeline, PROMPTS, settings=SETTINGS, folder=folder) == better
    monkeypatch.setattr(learning, "calibrate", saving(calibration))
    galaxydit.learn(tiny_wan_pipeline, PROMPTS, settings=replace(SETTINGS, steps=10), folder=folder)
    assert len([*folder.glob("*.json")]) == 2
    assert read_profile(path) == better


def test_a_damaged_file_is_made_again(tiny_wan_pipeline: WanPipeline, folder: Path) -> None:
    (path,) = folder.glob("*.json")
    profile = read_profile(path)
    path.write_text("{")
    with pytest.warns(ProfileWarning, match="made again"):
        again = galaxydit.learn(tiny_wan_pipeline, PROMPTS, settings=SETTINGS, folder=folder)
    assert str(path) in again.source
    expected = replace(profile, source=again.source, evidence=replace(profile.evidence, seconds=None))
    assert replace(again, evidence=replace(again.evidence, seconds=None)) == expected


def test_a_folder_that_cannot_be_written_keeps_it_in_memory(
    tiny_wan_pipeline: WanPipeline, calibration: Calibration, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home").write_text("a file where the folder should be")
    monkeypatch.setattr(learning, "calibrate", lambda *_, **__: calibration)
    with pytest.warns(ProfileWarning, match="kept in memory alone"):
        found = galaxydit.learn(tiny_wan_pipeline, PROMPTS, settings=SETTINGS, folder=tmp_path / "home" / "profiles")
    assert found == calibration.profile


def test_a_folder_that_is_no_path_is_refused(tiny_wan_pipeline: WanPipeline) -> None:
    with pytest.raises(GalaxyDiTError, match=r"folder=3 is not allowed: expected a text or a path"):
        galaxydit.learn(tiny_wan_pipeline, folder=3)  # type: ignore[arg-type]


@pytest.mark.parametrize("part", ["text_encoder", "tokenizer"])
def test_a_pipeline_without_its_text_encoder_is_refused_with_the_cure(
    part: str, tiny_wan_pipeline: WanPipeline, tmp_path: Path
) -> None:
    setattr(tiny_wan_pipeline, part, None)
    with pytest.raises(
        GalaxyDiTError, match=rf"{part}=None is not allowed: .*; load it with its {part}; with prompt_embeds"
    ):
        galaxydit.learn(tiny_wan_pipeline, PROMPTS, settings=SETTINGS, folder=tmp_path)
    with pytest.raises(GalaxyDiTError, match=f"load it with its {part}"):
        generate(tiny_wan_pipeline, "a ball", SETTINGS, 0)


def saving(calibration: Calibration) -> Callable[..., Calibration]:
    """A `calibrate` that measures nothing."""

    def calibrate(*_: Any, resume_dir: Path, on_profile: Callable[[Profile], None], **__: Any) -> Calibration:
        Store(resume_dir).create(KIND, {})
        on_profile(calibration.profile)
        return calibration

    return calibrate


def unlinked_then_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("x")


DAMAGES: dict[str, Callable[[Path], object]] = {
    "no run.json": lambda parts: (parts / "run.json").unlink(),
    "an empty run.json": lambda parts: (parts / "run.json").write_bytes(b""),
    "a run.json that was cut off": lambda parts: (parts / "run.json").write_text('{"format": 2, "ki'),
    "a run.json of an earlier format": lambda parts: (parts / "run.json").write_text('{"format": 1, "kind": "x"}'),
    "a later run.json that is damaged": lambda parts: (parts / "run.2.json").write_text("{"),
    "a folder in place of run.json": lambda parts: ((parts / "run.json").unlink(), (parts / "run.json").mkdir()),
    "a file in place of the folder": unlinked_then_file,
    "a file in place of the records": lambda parts: unlinked_then_file(parts / "units"),
    "a folder in place of a record": lambda parts: (parts / "units" / "a.json").mkdir(),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_damaged_in_its_own_folder_is_moved_aside_and_all_begins_anew(
    tiny_wan_pipeline: WanPipeline,
    calibration: Calibration,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    damage: str,
) -> None:
    monkeypatch.setattr(learning, "calibrate", saving(calibration))
    profile = galaxydit.learn(tiny_wan_pipeline, PROMPTS, settings=SETTINGS, folder=tmp_path)
    (path,) = tmp_path.glob("*.json")
    path.unlink()
    DAMAGES[damage](path.with_suffix(".parts"))
    with pytest.warns(DataWarning, match=r"was moved to .*\.parts\.damaged-1 and all begins anew"):
        assert galaxydit.learn(tiny_wan_pipeline, PROMPTS, settings=SETTINGS, folder=tmp_path) == profile
    assert path.with_name(f"{path.stem}.parts.damaged-1").exists()
    assert path.is_file()


def test_a_folder_in_place_of_the_profile_is_moved_aside(
    tiny_wan_pipeline: WanPipeline, calibration: Calibration, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        learning, "calibrate", lambda *_, on_profile, **__: on_profile(calibration.profile) or calibration
    )
    galaxydit.learn(tiny_wan_pipeline, PROMPTS, settings=SETTINGS, folder=tmp_path)
    (path,) = tmp_path.glob("*.json")
    path.unlink()
    (path / "mine").mkdir(parents=True)
    with pytest.warns(ProfileWarning, match="made again"):
        galaxydit.learn(tiny_wan_pipeline, PROMPTS, settings=SETTINGS, folder=tmp_path)
    assert path.is_file()
    assert (tmp_path / f"{path.name}.damaged-1" / "mine").is_dir()


def test_a_user_without_a_home_folder_keeps_it_in_memory(
    tiny_wan_pipeline: WanPipeline, calibration: Calibration, monkeypatch: pytest.MonkeyPatch
) -> None:
    def homeless(name: str) -> Path:
        raise RuntimeError("could not determine the home directory")

    monkeypatch.setattr(learning, "user_data_path", homeless)
    monkeypatch.setattr(learning, "calibrate", lambda *_, **__: calibration)
    with pytest.warns(ProfileWarning, match=r"kept in memory alone, because .* no home folder"):
        assert galaxydit.learn(tiny_wan_pipeline, PROMPTS, settings=SETTINGS) == calibration.profile


@pytest.mark.parametrize("folder", ["a" * 300, "a\0b"])
def test_a_folder_whose_name_no_file_can_have_keeps_it_in_memory(
    tiny_wan_pipeline: WanPipeline, calibration: Calibration, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    monkeypatch.setattr(learning, "calibrate", lambda *_, **__: calibration)
    with pytest.warns(ProfileWarning, match="kept in memory alone"):
        found = galaxydit.learn(tiny_wan_pipeline, PROMPTS, settings=SETTINGS, folder=folder)
    assert found == calibration.profile


def test_a_tilde_is_the_home_folder_and_a_fifo_is_moved_aside(
    tiny_wan_pipeline: WanPipeline, calibration: Calibration, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(learning, "calibrate", saving(calibration))
    galaxydit.learn(tiny_wan_pipeline, PROMPTS, settings=SETTINGS, folder="~/profiles")
    assert [path.name for path in tmp_path.iterdir()] == ["profiles"]
    (path,) = (tmp_path / "profiles").glob("*.json")
    path.unlink()
    os.mkfifo(path)
    with pytest.warns(ProfileWarning, match="not a FIFO"):
        galaxydit.learn(tiny_wan_pipeline, PROMPTS, settings=SETTINGS, folder="~/profiles")
    assert path.is_file()
