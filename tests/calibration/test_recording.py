import json
from collections.abc import Callable
from dataclasses import asdict

import numpy as np
import pytest

from galaxydit.calibration.recording import Recording
from galaxydit.extrapolation import DAMPING
from galaxydit.validation import parse


@pytest.fixture
def outputs(outputs_of: Callable) -> np.ndarray:
    """The very outputs that recording number 3 was made from."""
    return outputs_of(np.random.default_rng([7, 3]))


@pytest.fixture
def recording(recording_of: Callable, noisy_proxy: Callable) -> Recording:
    return recording_of(3, {"block_residual": noisy_proxy(0.1)})


@pytest.mark.parametrize("lag", [1, 2, 4])
def test_changes_follow_from_the_kept_products(recording: Recording, outputs: np.ndarray, lag: int) -> None:
    change = recording.guided_change(lag)
    assert np.isnan(change[:lag]).all()
    true = np.linalg.norm(outputs[lag:] - outputs[:-lag], axis=1) / np.linalg.norm(outputs[lag:], axis=1)
    np.testing.assert_allclose(change[lag:], true, rtol=1e-6)


@pytest.mark.parametrize(("gap", "gap_before"), [(1, 1), (3, 2), (6, 4)])
def test_errors_of_extrapolation_follow_from_the_kept_products(
    recording: Recording, outputs: np.ndarray, gap: int, gap_before: int
) -> None:
    errors = recording.prediction_error(1, gap, gap_before)
    sigmas = recording.sigmas
    for step in (gap + gap_before, 20, 39):
        newest, older = step - gap, step - gap - gap_before
        slope = (outputs[newest] - outputs[older]) / (sigmas[newest] - sigmas[older])
        guess = outputs[newest] + DAMPING * slope * (sigmas[step] - sigmas[newest])
        true = np.linalg.norm(guess - outputs[step]) / np.linalg.norm(outputs[step])
        assert errors[step] == pytest.approx(true, rel=1e-6)


def test_distances_add_up_over_a_lag(recording: Recording) -> None:
    distances = np.array(recording.distances["block_residual"])
    summed = recording.accumulated("block_residual", 3)
    assert np.isnan(summed[:3]).all()
    np.testing.assert_allclose(summed[3:], distances[3:] + distances[2:-1] + distances[1:-2])


def test_plain_data_and_back(recording: Recording) -> None:
    assert parse(Recording, json.loads(json.dumps(asdict(recording)))) == recording
