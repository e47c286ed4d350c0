from dataclasses import replace

import numpy as np
import pytest

from galaxydit.calibration.coefficients import RIDGES, choose_ridge, fit_coefficients
from galaxydit.calibration.recording import Recording
from galaxydit.calibration.schedule_error import ScheduleError
from galaxydit.profiles.schema import ErrorPropagation

FADING = ErrorPropagation((0.9, 0.2), (5.0, 0.5))
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


def test_where_samples_bend_alike_coefficients_lower_the_error_of_others(alike: list[Recording]) -> None:
    ridge = choose_ridge(alike[:6], FULL, FADING)
    assert ridge is not None
    coefficients, _ = fit_coefficients(ScheduleError(alike[:6]), FULL, FADING, ridge)
    unseen = ScheduleError(alike[6:])
    assert unseen.final_error(FULL, FADING, coefficients).mean() < 0.7 * unseen.final_error(FULL, FADING).mean()


@pytest.mark.parametrize(("pair", "ridge"), [((0, 1), 0.1), ((1, 7), 1.0), ((0, 7), 10.0), ((0, 8), None)])
def test_the_less_samples_have_in_common_the_stronger_is_the_ridge(
    recordings: list[Recording], pair: tuple[int, int], ridge: float | None
) -> None:
    straight = replace(recordings[0], guided_products=((1e-3,) * 39,) * 39)  # order 1 is right for it
    chosen = [[*recordings, straight][index] for index in pair]
    assert choose_ridge(chosen, FULL, FADING) == ridge
    held_out = {None: 0.0} | dict.fromkeys(RIDGES, 0.0)
    for seen, unseen in (chosen, chosen[::-1]):
        for tried in held_out:
            coefficients = None if tried is None else fit_coefficients(ScheduleError([seen]), FULL, FADING, tried)[0]
            held_out[tried] += ScheduleError([unseen]).final_error(FULL, FADING, coefficients)[0]
    assert min(held_out, key=held_out.__getitem__) == ridge


def test_no_small_change_of_any_coefficient_lowers_error_and_penalty_together(recordings: list[Recording]) -> None:
    model = ScheduleError(recordings)
    coefficients, error = fit_coefficients(model, FULL, FADING)
    assert error == pytest.approx(model.final_error(FULL, FADING, coefficients).mean(), rel=1e-6)
    where, terms = model.interval_terms(FULL, FADING)
    squares = np.einsum("gti,ij,gtj->gt", terms, model.mean_products, terms)[:, 1:]

    def cost(tried: list[tuple[float, float]]) -> float:
        away = np.array([tried[index] for index in where]) - (1.0, 0.0)
        return float(model.final_error(FULL, FADING, tuple(tried)).mean() + RIDGES[0] * np.sum(squares * away**2))

    least = cost(list(coefficients))
    for index in where:
        for change in ((0.02, 0.0), (-0.02, 0.0), (0.0, 0.02), (0.0, -0.02)):
            tried = list(coefficients)
            tried[index] = (tried[index][0] + change[0], tried[index][1] + change[1])
            assert cost(tried) > least


def test_full_steps_without_an_interval_take_a_neighbours_coefficients_and_missing_cached_steps_leave_order_1(
    recordings: list[Recording],
) -> None:
    coefficients, _ = fit_coefficients(ScheduleError(recordings), FULL, FADING)
    assert len(coefficients) == len(FULL)
    assert coefficients[0] == coefficients[3] != coefficients[5]
    assert coefficients[4] == coefficients[3]
    first, _ = fit_coefficients(ScheduleError(recordings), (0, 3, 9, *range(10, 40)), FADING)
    assert first[0] == (1.0, 0.0)
    assert first[1][1] == 0.0 != first[1][0] - 1.0


def test_without_reuse_all_coefficients_are_of_order_1(recordings: list[Recording]) -> None:
    assert fit_coefficients(ScheduleError(recordings), tuple(range(40)), FADING) == (((1.0, 0.0),) * 40, 0.0)
