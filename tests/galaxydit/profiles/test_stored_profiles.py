"""Profile files that are part of the repository, and files of another format."""

import json
from pathlib import Path

import pytest

from galaxydit.errors import GalaxyDiTError
from galaxydit.files import digest_of
from galaxydit.profiles.schema import SCHEMA_VERSION, parse_profile, read_profile

ROOT = Path(__file__).parents[3]
STORED = [
    *(ROOT / "galaxydit" / "profiles").glob("*.json"),
    *(ROOT / "eval" / "results" / "calibration-draws").glob("draw-*.json"),
]


def test_every_stored_profile_is_read() -> None:
    assert len(STORED) == 6
    for path in STORED:
        assert read_profile(path).schema_version == SCHEMA_VERSION


@pytest.mark.parametrize("version", [SCHEMA_VERSION - 1, SCHEMA_VERSION + 1])
def test_a_file_of_another_format_is_refused_with_the_cure(version: int) -> None:
    content = json.loads(STORED[0].read_text())
    del content["digest"]
    content["schema_version"] = version
    with pytest.raises(GalaxyDiTError, match=rf"schema_version={version} is not allowed: .*; calibrate again"):
        parse_profile(content | {"digest": digest_of(content)})
