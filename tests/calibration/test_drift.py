from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from galaxydit.calibration.drift import LONGEST_GAP, Drift
from galaxydit.calibration.recording import Recording
from galaxydit.propagation import Propagation

NEUTRAL = Propagation()


@pytest.fixture
def recording(recording_of: Callable, noisy_proxy: Callable) -> Recording:
    return recording_of(3, {"block_residual": noisy_proxy(0.1)}, 20)


@pytest.fixture
def outputs(outputs_of: Callable) -> np.ndarray:
    return outputs_of(np.random.default_rng([7, 3]), 20)


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize(("older", "newest", "following"), [(-1, 0, 3), (2, 5, 7), (4, 5, 12), (0, 8, 12)])
def test_it_is_the_length_of_the_summed_prediction_errors(
    recording: Recording, outputs: np.ndarray, order: int, older: int, newest: int, following: int
) -> None:
    sigmas, moved = recording.sigmas, np.zeros(outputs.shape[1])
    for step in range(newest + 1, following):
        predicted = outputs[newest]
        if order and older >= 0:
            slope = (outputs[newest] - outputs[older]) / (sigmas[newest] - sigmas[older])
            predicted = predicted + slope * (sigmas[step] - sigmas[newest])
        moved += (sigmas[step] - sigmas[step + 1]) * (predicted - outputs[step])
    found = Drift([recording], order).of_gap(older, newest, following)
    assert found == pytest.approx([np.mean(moved**2)])


def test_a_path_that_is_straight_in_sigma_is_predicted_without_drift(recording: Recording) -> None:
    direction = np.arange(1.0, 5.0)
    outputs = np.outer(recording.sigmas, direction)
    grams = []
    for step in range(len(outputs)):
        moves = outputs[max(0, step - 12) : step][::-1] - outputs[step]
        grams.append(tuple(tuple(row) for row in (moves @ moves.T / 4).tolist()))
    straight = replace(recording, guided_gram=tuple(grams))
    assert Drift([straight], 1).of_gap(3, 5, 9) == pytest.approx([0.0], abs=1e-12)
    assert Drift([straight], 0).of_gap(3, 5, 9)[0] > 1e-3


def test_computing_every_step_costs_nothing_and_reuse_costs_more_the_more_there_is(recording: Recording) -> None:
    drift = Drift([recording], 1)
    errors = [drift.at_the_end([*range(0, 19, n), 19], NEUTRAL)[0] for n in (1, 2, 4, 8)]
    assert errors[0] == 0.0
    assert errors == sorted(errors)


def test_a_longer_gap_than_was_read_drifts_farther(recording: Recording) -> None:
    drift = Drift([recording], 1)
    assert drift.of_gap(1, 2, 2 + LONGEST_GAP + 1)[0] > drift.of_gap(1, 2, 2 + LONGEST_GAP)[0] > 0


def test_the_gain_at_a_gaps_noise_level_scales_its_share(recording: Recording) -> None:
    drift, full = Drift([recording], 1), [step for step in range(20) if step != 10]
    assert drift.at_the_end(full, Propagation((0.5,), (3.0,))) == pytest.approx(9 * drift.at_the_end(full, NEUTRAL))
