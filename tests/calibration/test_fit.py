from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from galaxydit.calibration.fit import fit_curve, fit_error_map
from galaxydit.calibration.recording import Recording

numbers = st.floats(1e-6, 10)


@given(st.lists(st.tuples(numbers, st.floats(0, 5)), min_size=1, max_size=60))
def test_the_curve_is_monotone_whatever_the_data(pairs: list[tuple[float, float]]) -> None:
    distance, error = (np.array(values) for values in zip(*pairs, strict=True))
    curve = fit_curve(np.stack([distance, np.full(len(distance), 0.5), error]))
    grid = [curve(x) for x in np.linspace(0, 12, 200)]
    assert all(after >= before - 1e-12 for before, after in pairwise(grid))
    assert curve(0.0) == 0.0


def test_a_known_monotone_law_is_found_again() -> None:
    rng = np.random.default_rng(0)
    distance = rng.uniform(0.01, 1, 4000)
    curve = fit_curve(np.stack([distance, np.full(4000, 0.5), distance**1.5 + 0.02 * rng.normal(size=4000)]))
    for x in (0.1, 0.4, 0.8):
        assert abs(curve(x) - x**1.5) < 0.03


def test_fits_of_recordings_explain_what_was_held_out(recordings: list[Recording]) -> None:
    _, good = fit_error_map(recordings, "block_residual", 0)
    _, bad = fit_error_map(recordings, "time_embedding", 0)
    assert good.r2_one_curve > 0.5
    assert good.spearman > bad.spearman


@pytest.mark.parametrize("switch", range(9))
@pytest.mark.parametrize("steps", [9, 10])
def test_few_steps_of_two_transformers_have_an_error_map(
    recording_of: Callable[..., Recording], steps: int, switch: int
) -> None:
    def distances(change: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return np.where(np.isin(np.arange(steps), (0, switch)), 0, rng.random(steps))

    pair = [replace(recording_of(index, {"noisy_latent": distances}, steps), switch=switch) for index in range(2)]
    error_map, _ = fit_error_map(pair, "noisy_latent", 1)
    assert error_map(0.5, 0.5) >= 0
