import json
from collections.abc import Callable
from dataclasses import asdict, replace

import numpy as np
import pytest

from galaxydit.calibration.rank import rank_proxies
from galaxydit.calibration.recording import Recording, rounding_and_change
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


ROUNDING = 0.5  # of the values of the outputs, whose change from step to step is about as large


@pytest.fixture
def rounded(recording_of: Callable, outputs_of: Callable, noisy_proxy: Callable) -> list[Recording]:
    """Recordings whose own outputs carry noise of the size of a step, and whose exact outputs have none."""
    made = []
    for index in range(8):
        exact = recording_of(index, {"block_residual": noisy_proxy(0.05), "time_embedding": noisy_proxy(5.0)})
        outputs = outputs_of(np.random.default_rng([7, index]))
        noisy = outputs + ROUNDING * np.random.default_rng(index).normal(size=outputs.shape)
        changes = np.diff(noisy, axis=0)
        products = changes @ changes.T / outputs.shape[1]
        own = replace(
            exact,
            guided_products=tuple(map(tuple, products.tolist())),
            exact_norms=exact.guided_norms,
            exact_products=exact.guided_products,
        )
        made.append(own)
    return made


def test_the_rounding_is_told_from_the_change_of_a_step(rounded: list[Recording]) -> None:
    rounding, change = rounding_and_change(rounded)
    norms = np.mean([one.exact_norms for one in rounded], axis=0)
    assert rounding == pytest.approx(float(np.median(ROUNDING / norms)), rel=0.15)
    true = np.sqrt(np.mean([np.diagonal(one.exact.products) for one in rounded], axis=0))
    assert change == pytest.approx(float(np.median(true / norms[1:])), rel=0.05)


def test_without_exact_outputs_no_rounding_is_known(rounded: list[Recording]) -> None:
    assert rounding_and_change([*rounded, replace(rounded[0], exact_norms=(), exact_products=())]) is None


def test_the_ranking_refers_to_exact_errors(rounded: list[Recording]) -> None:
    without = [replace(one, exact_norms=(), exact_products=()) for one in rounded]
    rho, hidden = ({row.proxy: row.rho for row in rank_proxies(made).rows} for made in (rounded, without))
    assert rho["block_residual"] > 0.8
    assert rho["block_residual"] > hidden["block_residual"] + 0.2
