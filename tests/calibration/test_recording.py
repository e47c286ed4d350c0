import json
from collections.abc import Callable
from dataclasses import asdict, replace

import numpy as np
import pytest

from galaxydit.calibration.rank import rank_proxies
from galaxydit.calibration.recording import Recording, estimated_rounding, rounding_between
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
def exact(recording_of: Callable, noisy_proxy: Callable) -> list[Recording]:
    proxies = {"block_residual": noisy_proxy(0.05), "time_embedding": noisy_proxy(5.0)}
    return [recording_of(index, proxies) for index in range(8)]


@pytest.fixture
def own(exact: list[Recording], outputs_of: Callable) -> list[Recording]:
    """The same generations with noise of the size of a step in every output."""
    made = []
    for index, one in enumerate(exact):
        outputs = outputs_of(np.random.default_rng([7, index]))
        changes = np.diff(outputs + ROUNDING * np.random.default_rng(index).normal(size=outputs.shape), axis=0)
        products = changes @ changes.T / outputs.shape[1]
        made.append(replace(one, guided_products=tuple(map(tuple, products.tolist()))))
    return made


def shares(recordings: list[Recording]) -> float:
    return float(np.median([ROUNDING / np.array(one.guided_norms) for one in recordings]))


def test_the_rounding_is_told_from_the_change_of_a_step(own: list[Recording], exact: list[Recording]) -> None:
    found = [rounding_between(*pair) for pair in zip(own, exact, strict=True)]
    assert float(np.median(found)) == pytest.approx(shares(exact), rel=0.15)
    assert rounding_between(exact[0], exact[0]) == 0


def test_added_rounding_has_the_products_of_noise_and_can_be_subtracted(
    own: list[Recording], exact: list[Recording]
) -> None:
    share = shares(exact)
    added = np.mean([replace(one, rounding=share).rounded.products for one in exact], axis=0)
    true = np.mean([one.products for one in own], axis=0)
    for diagonal in (0, 1):
        near = np.diagonal(added, diagonal).mean(), np.diagonal(true, diagonal).mean()
        assert near[0] == pytest.approx(near[1], rel=0.15, abs=0.02)
    back = replace(exact[0], rounding=share).rounded.without_rounding(share)
    np.testing.assert_allclose(np.diagonal(back.products, 1), np.diagonal(exact[0].products, 1), rtol=1e-6)


def test_the_ranking_needs_the_exact_errors(own: list[Recording], exact: list[Recording]) -> None:
    rho, hidden = ({row.proxy: row.rho for row in rank_proxies(made).rows} for made in (exact, own))
    assert rho["block_residual"] > 0.8
    assert rho["block_residual"] > hidden["block_residual"] + 0.2


def test_a_smooth_path_shows_its_rounding_without_an_exact_generation() -> None:
    rng, steps = np.random.default_rng(3), np.linspace(0, 2, 50)[:, None]
    path = np.sin(steps + rng.uniform(0, 6, 4000)) * 2
    noisy = path + 0.05 * rng.normal(size=path.shape)
    changes = np.diff(noisy, axis=0)
    norms = tuple(np.sqrt(np.mean(noisy**2, axis=1)).tolist())
    products = tuple(map(tuple, (changes @ changes.T / 4000).tolist()))
    one = Recording("a", 0, tuple(np.linspace(1, 0.02, 50).tolist()), (0.02,) * 50, 1.0, (1,), {}, norms, products)
    assert estimated_rounding(one) == pytest.approx(0.05 / np.median(norms), rel=0.1)
