from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from galaxydit.calibration.drift import Drift
from galaxydit.calibration.recording import Recording
from galaxydit.propagation import Propagation
from galaxydit.reuse import predict

NEUTRAL = Propagation()


@pytest.fixture
def recording(recording_of: Callable, noisy_proxy: Callable) -> Recording:
    return recording_of(3, {"block_residual": noisy_proxy(0.1)}, 20)


@pytest.fixture
def outputs(outputs_of: Callable) -> np.ndarray:
    return outputs_of(np.random.default_rng([7, 3]), 20)


@pytest.mark.parametrize("weights", [(0.0, 0.0), (1.0, 0.0), (0.7, -0.4)])
@pytest.mark.parametrize(("anchors", "following"), [((0,), 3), ((2, 5), 7), ((1, 4, 5), 12), ((0, 2, 8), 12)])
def test_it_is_the_length_of_the_summed_errors_of_the_predictions_in_use(
    recording: Recording, outputs: np.ndarray, weights: tuple[float, float], anchors: tuple[int, ...], following: int
) -> None:
    sigmas, moved = recording.sigmas, np.zeros(outputs.shape[1])
    history = tuple((sigmas[step], torch.from_numpy(outputs[step])) for step in anchors)
    for step in range(anchors[-1] + 1, following):
        predicted = predict(history, sigmas[step], weights).numpy()
        moved += recording.step_weights[step] * (predicted - outputs[step])
    drift = Drift([recording])
    row = np.array([1.0, *weights]) @ drift.terms(anchors, following)
    assert row @ drift.mean_products @ row == pytest.approx(np.mean(moved**2))


def test_drifts_of_different_gaps_count_apart_or_as_one(recording: Recording) -> None:
    drift, full = Drift([recording]), [*range(8), 11, 12, 15, 16, 17, 18, 19]
    apart = drift.at_the_end(full, NEUTRAL, lasting=0.0)
    as_one = drift.at_the_end(full, NEUTRAL, lasting=1.0)
    assert apart != pytest.approx(as_one)
    assert drift.at_the_end(full, NEUTRAL, lasting=0.5) == pytest.approx((apart + as_one) / 2)
    rows = [drift.terms((6, 7), 11)[:2].sum(0), drift.terms((11, 12), 15)[:2].sum(0)]
    assert apart == pytest.approx(sum(row @ drift.mean_products @ row for row in rows))
    assert as_one == pytest.approx(sum(rows) @ drift.mean_products @ sum(rows))


def test_the_larger_the_errors_the_less_lasts_and_half_of_it_at_a_twentieth_of_the_noise(recording: Recording) -> None:
    full = [*range(8), 11, 12, 15, 16, 17, 18, 19]
    apart = Drift([recording]).at_the_end(full, NEUTRAL, lasting=0.0)[0]

    def lasting(error: float) -> float:
        products = recording.products * (error**2 / apart)
        drift = Drift([replace(recording, guided_products=tuple(map(tuple, products.tolist())))])
        return drift.lasting(drift.gaps(full, NEUTRAL)[1])

    assert [lasting(error) for error in (1e-6, 0.05, 0.5)] == pytest.approx([1.0, 0.5, 1 / 101])
    drift = Drift([recording])
    own = drift.lasting(drift.gaps(full, NEUTRAL)[1])
    assert drift.at_the_end(full, NEUTRAL) == pytest.approx(drift.at_the_end(full, NEUTRAL, lasting=own))


def test_a_path_that_is_straight_in_sigma_is_predicted_without_drift(recording: Recording) -> None:
    changes = np.diff(np.outer(recording.sigmas, np.arange(1.0, 5.0)), axis=0)
    straight = replace(recording, guided_products=tuple(tuple(row) for row in (changes @ changes.T / 4).tolist()))
    full = [0, 1, 2, 3, 5, 9, *range(10, 20)]
    assert Drift([straight]).at_the_end(full, NEUTRAL) == pytest.approx([0.0], abs=1e-12)
    assert Drift([straight]).at_the_end(full, NEUTRAL, ((0.0, 0.0),) * len(full))[0] > 1e-3


def test_computing_every_step_costs_nothing_and_reuse_costs_more_the_more_there_is(recording: Recording) -> None:
    drift = Drift([recording])
    errors = [drift.at_the_end([*range(0, 19, n), 19], NEUTRAL)[0] for n in (1, 2, 4, 8)]
    assert errors[0] == 0.0
    assert errors == sorted(errors)


def test_the_gain_at_a_gaps_noise_level_scales_its_share(recording: Recording) -> None:
    drift, full = Drift([recording]), [step for step in range(20) if step != 10]
    assert drift.at_the_end(full, Propagation((0.5,), (3.0,))) == pytest.approx(9 * drift.at_the_end(full, NEUTRAL))
