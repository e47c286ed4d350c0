import pytest

from galaxydit.calibration.analyze import compare
from galaxydit.calibration.recording import Recording
from galaxydit.profiles.schema import Profile


def test_recordings_are_like_themselves(drafted: Profile, recordings: list[Recording]) -> None:
    row = compare("nothing", drafted, recordings, recordings)
    assert row.pattern_rho == pytest.approx(1.0)
    assert row.pattern_difference == pytest.approx(0.0)
    assert row.error_ratio == pytest.approx(1.0, abs=0.1)
    assert row.best_proxy == drafted.recipe.proxy
