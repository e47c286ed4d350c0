"""What tuning spent is counted from the videos of tuning captions alone."""

from pathlib import Path

from galaxydit.eval.compare.plan import SCORING_SEED, TUNING_SEED
from galaxydit.eval.compared import ROOT
from galaxydit.eval.jobs.record import BASELINE
from galaxydit.eval.protocol_data import FOLDER
from galaxydit.eval.tuning_cost import NAME, Video, tuning_cost, tuning_section
from galaxydit.files import write_json


def video(name: str, method: str, seed: int, psnr: float = 40.0) -> Video:
    return {"variant": {"name": name, "method": method}, "seed": seed}, {"psnr": psnr}


def test_videos_of_tuning_captions_are_counted_by_method() -> None:
    videos = [
        video("taylorseer-1", "taylorseer", TUNING_SEED),
        video("taylorseer-1", "taylorseer", TUNING_SEED + 1),
        video("taylorseer-2", "taylorseer", TUNING_SEED),
        video("spectrum-1", "spectrum", SCORING_SEED),
        video(BASELINE, "", TUNING_SEED),
        video(BASELINE, "", SCORING_SEED),
    ]
    assert tuning_cost(videos) == {"TaylorSeer": {"settings": 2, "videos": 3}}


def test_the_chosen_settings_have_their_psnr_on_tuning_and_on_scored_captions() -> None:
    videos = [
        video("taylorseer-1", "taylorseer", TUNING_SEED, 50.0),
        video("taylorseer-1", "taylorseer", TUNING_SEED + 1, 40.0),
        video("taylorseer-2", "taylorseer", TUNING_SEED, 10.0),  # not chosen
        video("taylorseer-3", "taylorseer", TUNING_SEED, 20.0),  # chosen while fewer captions were scored
        video("taylorseer-3", "taylorseer", SCORING_SEED, 20.0),
        video("taylorseer-1", "taylorseer", SCORING_SEED, 30.0),
        video("taylorseer-1", "taylorseer", SCORING_SEED + 1, 36.0),
    ]
    counts = {"settings": 3, "videos": 4}
    assert tuning_cost(videos) == {"TaylorSeer": {**counts, "psnr_tuned": 45.0, "psnr_scored": 33.0}}


def test_the_table_shows_the_committed_counts(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    row = {"settings": 5, "videos": 20, "psnr_tuned": 45.0, "psnr_scored": 33.04}
    write_json(tmp_path / FOLDER / NAME, {"galaxydit schedule": row, "Spectrum": {"settings": 2, "videos": 3}})
    made = tuning_section(tmp_path, ROOT / "README.md")
    assert "| galaxydit calibrated | 5 | 20 | 45.0 | 33.0 |" in made
    assert "| Spectrum | 2 | 3 | - | - |" in made
