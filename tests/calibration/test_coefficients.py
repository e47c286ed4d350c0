from dataclasses import replace

import numpy as np
import pytest

from galaxydit.calibration.drift import Drift
from galaxydit.calibration.recording import Recording
from galaxydit.calibration.weights import PULLS, choose_pull, fit_weights
from galaxydit.propagation import Propagation

FADING = Propagation((0.9, 0.2), (5.0, 0.5))
FULL = (0, 1, 2, 3, 6, 7, 12, 15, 20, 26, 33, 38, 39)


@pytest.fixture
def alike(recordings: list[Recording]) -> list[Recording]:
    """Recordings that bend alike: up to a tenth of each other's products."""
    first = np.array(recordings[0].guided_products)
    mixed = [0.9 * first + 0.1 * np.array(recording.guided_products) for recording in recordings]
    return [
        replace(recording, guided_products=tuple(tuple(row) for row in products.tolist()))
        for recording, products in zip(recordings, mixed, strict=True)
    ]


def test_where_samples_bend_alike_weights_lower_the_error_of_others(alike: list[Recording]) -> None:
    pull = choose_pull(alike[:6], FULL, FADING)
    assert pull is not None
    weights, _ = fit_weights(Drift(alike[:6]), FULL, FADING, pull)
    unseen = Drift(alike[6:])
    assert unseen.at_the_end(FULL, FADING, weights).mean() < 0.7 * unseen.at_the_end(FULL, FADING).mean()


@pytest.mark.parametrize(("pair", "pull"), [((0, 1), 0.1), ((1, 7), 1.0), ((0, 7), 10.0), ((0, 8), None)])
def test_the_less_samples_have_in_common_the_nearer_to_order_1_they_are_weighed(
    recordings: list[Recording], pair: tuple[int, int], pull: float | None
) -> None:
    straight = replace(recordings[0], guided_products=((1e-3,) * 39,) * 39)  # order 1 is right for it
    chosen = [[*recordings, straight][index] for index in pair]
    assert choose_pull(chosen, FULL, FADING) == pull
    held_out = {None: 0.0} | dict.fromkeys(PULLS, 0.0)
    for seen, unseen in (chosen, chosen[::-1]):
        for tried in held_out:
            weights = None if tried is None else fit_weights(Drift([seen]), FULL, FADING, tried)[0]
            held_out[tried] += Drift([unseen]).at_the_end(FULL, FADING, weights)[0]
    assert min(held_out, key=held_out.__getitem__) == pull


def test_no_small_change_of_any_weight_lowers_error_and_pull_together(recordings: list[Recording]) -> None:
    drift = Drift(recordings)
    weights, error = fit_weights(drift, FULL, FADING)
    assert error == pytest.approx(drift.at_the_end(FULL, FADING, weights).mean(), rel=1e-6)
    where, terms = drift.gaps(FULL, FADING)
    squares = np.einsum("gti,ij,gtj->gt", terms, drift.mean_products, terms)[:, 1:]

    def cost(tried: list[tuple[float, float]]) -> float:
        away = np.array([tried[index] for index in where]) - (1.0, 0.0)
        return float(drift.at_the_end(FULL, FADING, tuple(tried)).mean() + PULLS[0] * np.sum(squares * away**2))

    least = cost(list(weights))
    for index in where:
        for change in ((0.02, 0.0), (-0.02, 0.0), (0.0, 0.02), (0.0, -0.02)):
            tried = list(weights)
            tried[index] = (tried[index][0] + change[0], tried[index][1] + change[1])
            assert cost(tried) > least


def test_full_steps_without_a_gap_have_the_weights_of_a_neighbour_and_missing_anchors_leave_order_1(
    recordings: list[Recording],
) -> None:
    weights, _ = fit_weights(Drift(recordings), FULL, FADING)
    assert len(weights) == len(FULL)
    assert weights[0] == weights[3] != weights[5]
    assert weights[4] == weights[3]
    first, _ = fit_weights(Drift(recordings), (0, 3, 9, *range(10, 40)), FADING)
    assert first[0] == (1.0, 0.0)
    assert first[1][1] == 0.0 != first[1][0] - 1.0


def test_without_reuse_nothing_is_weighed(recordings: list[Recording]) -> None:
    assert fit_weights(Drift(recordings), tuple(range(40)), FADING) == (((1.0, 0.0),) * 40, 0.0)
