"""What tuning spent is counted from the videos of tuning captions alone."""

from pathlib import Path
from typing import Any

from galaxydit.eval.compare.plan import SCORING_SEED, TUNING_SEED
from galaxydit.eval.compared import ROOT
from galaxydit.eval.jobs.record import BASELINE
from galaxydit.eval.protocol_data import FOLDER
from galaxydit.eval.tuning_cost import NAME, tuning_cost, tuning_section
from galaxydit.files import write_json


def video(name: str, method: str, seed: int) -> dict[str, Any]:
    return {"variant": {"name": name, "method": method}, "seed": seed}


def test_videos_of_tuning_captions_are_counted_by_method() -> None:
    videos = [
        video("taylorseer-1", "taylorseer", TUNING_SEED),
        video("taylorseer-1", "taylorseer", TUNING_SEED + 1),
        video("taylorseer-2", "taylorseer", TUNING_SEED),
        video("taylorseer-1", "taylorseer", SCORING_SEED),
        video(BASELINE, "", TUNING_SEED),
    ]
    assert tuning_cost(videos) == {"TaylorSeer": {"settings": 2, "videos": 3}}


def test_the_table_shows_the_committed_counts(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    write_json(tmp_path / FOLDER / NAME, {"galaxydit schedule": {"settings": 5, "videos": 20}})
    assert "| galaxydit calibrated | 5 | 20 |" in tuning_section(tmp_path, ROOT / "README.md")
