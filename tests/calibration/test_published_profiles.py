import pytest

from galaxydit.calibration.published_profiles import published_profile
from galaxydit.profiles.registry import load_profile


@pytest.mark.parametrize("name", ["t2v-1.3b", "t2v-14b", "i2v-14b-480p", "i2v-14b-720p"])
def test_the_shipped_profiles_are_the_published_ones(name: str) -> None:
    assert published_profile(name) == load_profile(f"wan2.1-{name}")
