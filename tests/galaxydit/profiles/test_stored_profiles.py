"""Profiles of earlier versions of the file format are read without generating anything."""

import json
from pathlib import Path
from typing import Any

import pytest

from galaxydit.errors import GalaxyDiTError
from galaxydit.profiles.schema import READ_VERSIONS, SCHEMA_VERSION, parse_profile, read_profile

STORED = Path(__file__).parent / "version-9.json"


def test_a_file_of_version_9_is_read_and_saved_in_the_present_version(tmp_path: Path) -> None:
    stored = json.loads(STORED.read_text())
    assert stored["schema_version"] == 9 in READ_VERSIONS
    profile = read_profile(STORED)
    assert profile.schema_version == SCHEMA_VERSION
    assert profile.evidence.recorded is None
    profile.save(tmp_path / "again.json")
    assert parse_profile(json.loads((tmp_path / "again.json").read_text())) == profile


def test_a_profile_that_was_planned_and_never_measured_is_refused_with_the_cure() -> None:
    stored: dict[str, Any] = json.loads(STORED.read_text()) | {"kind": "published"}
    with pytest.raises(GalaxyDiTError, match=r"kind='published' is not allowed: .*leave profile out"):
        parse_profile(stored)
