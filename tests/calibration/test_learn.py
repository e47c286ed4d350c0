"""A learned profile is made once, kept, found again, and never replaced by a lesser one."""

from dataclasses import replace
from pathlib import Path

import pytest
from diffusers import WanPipeline

import galaxydit
from galaxydit.calibration import learn as learning
from galaxydit.calibration.calibration import Calibration
from galaxydit.errors import GalaxyDiTError, ProfileWarning
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.profiles.schema import read_profile

SETTINGS = GenerationSettings(32, 32, 5, steps=12, guidance_scale=3.0)
PROMPTS = ["a red ball", "a blue box"]


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


def test_plain_accelerate_never_reads_it(tiny_wan_pipeline: WanPipeline, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(learning, "user_data_path", lambda name: tmp_path)
    galaxydit.learn(tiny_wan_pipeline, PROMPTS, settings=SETTINGS)
    assert [*(tmp_path / "profiles").glob("*.json")]
    with galaxydit.accelerate(tiny_wan_pipeline, speedup=2) as acceleration:
        generate(tiny_wan_pipeline, "a cyan ball", SETTINGS, 3)
    assert "a general schedule" in str(acceleration.report.notes)


def test_a_better_profile_stays_and_other_settings_have_another_file(
    tiny_wan_pipeline: WanPipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = galaxydit.learn(tiny_wan_pipeline, PROMPTS, settings=SETTINGS, folder=tmp_path)
    (path,) = tmp_path.glob("*.json")
    better = replace(profile, conditions=replace(profile.conditions, samples=3))  # fewer than a finished one
    rows = tuple(replace(row, prompts=8, psnr_db=30.0) for row in profile.evidence.verifications)
    better = replace(better, evidence=replace(profile.evidence, verifications=rows))
    better.save(path)
    assert galaxydit.learn(tiny_wan_pipeline, PROMPTS, settings=SETTINGS, folder=tmp_path) == better
    galaxydit.learn(tiny_wan_pipeline, PROMPTS, settings=replace(SETTINGS, steps=10), folder=tmp_path)
    assert len([*tmp_path.glob("*.json")]) == 2
    assert read_profile(path) == better


def test_a_damaged_file_is_made_again(tiny_wan_pipeline: WanPipeline, tmp_path: Path) -> None:
    profile = galaxydit.learn(tiny_wan_pipeline, PROMPTS, settings=SETTINGS, folder=tmp_path)
    (path,) = tmp_path.glob("*.json")
    path.write_text("{")
    with pytest.warns(ProfileWarning, match="made again"):
        again = galaxydit.learn(tiny_wan_pipeline, PROMPTS, settings=SETTINGS, folder=tmp_path)
    assert replace(again, evidence=replace(again.evidence, seconds=None)) == replace(
        profile, evidence=replace(profile.evidence, seconds=None)
    )


def test_a_folder_that_cannot_be_written_keeps_it_in_memory(
    tiny_wan_pipeline: WanPipeline, calibration: Calibration, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home").write_text("a file where the folder should be")
    monkeypatch.setattr(learning, "calibrate", lambda *_, **__: calibration)
    with pytest.warns(ProfileWarning, match="kept in memory alone"):
        found = galaxydit.learn(tiny_wan_pipeline, PROMPTS, settings=SETTINGS, folder=tmp_path / "home" / "profiles")
    assert found == calibration.profile


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
