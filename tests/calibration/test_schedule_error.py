from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
import torch

from galaxydit.calibration.recording import Recording, StreamRecording
from galaxydit.calibration.search import ScheduleError, best_schedules
from galaxydit.extrapolation import DAMPING, CachedStep, correction, missed, predict
from galaxydit.profiles.evidence import ErrorPropagation

NEUTRAL = ErrorPropagation()


@pytest.fixture
def recording(recording_of: Callable, noisy_proxy: Callable) -> Recording:
    return recording_of(3, {"block_residual": noisy_proxy(0.1)}, 20)


@pytest.fixture
def outputs(outputs_of: Callable) -> np.ndarray:
    return outputs_of(np.random.default_rng([7, 3]), 20)


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize(("cached_steps", "following"), [((0,), 3), ((2, 5), 7), ((4, 5), 12), ((2, 8), 12)])
@pytest.mark.parametrize("corrects", [False, True])
def test_it_is_the_norm_of_the_summed_errors_of_the_predictions_in_use(
    recording: Recording,
    outputs: np.ndarray,
    order: Literal[0, 1],
    cached_steps: tuple[int, ...],
    following: int,
    corrects: bool,
) -> None:
    sigmas, latent_error = recording.sigmas, np.zeros(outputs.shape[1])
    history = tuple(CachedStep(step, sigmas[step], torch.from_numpy(outputs[step])) for step in cached_steps)
    for step in range(cached_steps[-1] + 1, following):
        predicted = predict(history, sigmas[step], order).numpy()
        latent_error += recording.scheduler_response[step] * (predicted - outputs[step])
    if corrects:
        response, newest = recording.scheduler_response, cached_steps[-1]
        computed = torch.from_numpy(outputs[following])
        reused, share = predict(history, sigmas[following], order), missed(sigmas, response, newest, following)
        made_up = correction(computed, reused, share, min(order, len(history) - 1))
        latent_error += response[following] * made_up.numpy()
    model = ScheduleError([recording], corrects)
    older = cached_steps[-2] if len(cached_steps) > 1 else None
    row = model.interval_error(older, cached_steps[-1], following, order)
    assert row @ model.mean_products @ row == pytest.approx(np.mean(latent_error**2))


def test_errors_of_different_intervals_add_incoherently_or_coherently(recording: Recording) -> None:
    model, full = ScheduleError([recording]), [*range(8), 11, 12, 15, 16, 17, 18, 19]
    incoherent = model.final_error(full, NEUTRAL, coherence=0.0)
    coherent = model.final_error(full, NEUTRAL, coherence=1.0)
    assert incoherent != pytest.approx(coherent)
    assert model.final_error(full, NEUTRAL, coherence=0.5) == pytest.approx((incoherent + coherent) / 2)
    rows = [model.interval_error(6, 7, 11, 1), model.interval_error(11, 12, 15, 1)]
    assert incoherent == pytest.approx(sum(row @ model.mean_products @ row for row in rows))
    assert coherent == pytest.approx(sum(rows) @ model.mean_products @ sum(rows))


def test_coherence_falls_with_the_error_and_is_one_half_at_a_twentieth_of_the_noise(recording: Recording) -> None:
    full = [*range(8), 11, 12, 15, 16, 17, 18, 19]

    def final_errors(error: float) -> list[float]:
        incoherent = ScheduleError([recording]).final_error(full, NEUTRAL, coherence=0.0)[0]
        products = recording.products * (error**2 / incoherent)
        model = ScheduleError([replace(recording, guided_products=tuple(map(tuple, products.tolist())))])
        return [float(model.final_error(full, NEUTRAL, coherence=share)[0]) for share in (0.0, 1.0, None)]

    for error, coherence in ((1e-6, 1.0), (0.05, 0.5), (0.5, 1 / 101)):
        incoherent, coherent, own = final_errors(error)
        assert own == pytest.approx((1 - coherence) * incoherent + coherence * coherent)


def test_on_a_path_that_is_straight_in_sigma_order_1_leaves_what_damping_withholds(recording: Recording) -> None:
    changes = np.diff(np.outer(recording.sigmas, np.arange(1.0, 5.0)), axis=0)
    straight = replace(recording, guided_products=tuple(tuple(row) for row in (changes @ changes.T / 4).tolist()))
    full = [0, 1, 2, 3, 5, 9, *range(10, 20)]
    repeated = ScheduleError([straight], corrects=False).final_error(full, NEUTRAL, order=0, coherence=1)
    assert repeated[0] > 1e-3
    followed = ScheduleError([straight], corrects=False).final_error(full, NEUTRAL, coherence=1)
    assert followed == pytest.approx((1 - DAMPING) ** 2 * repeated, rel=1e-5)


def test_computing_every_step_costs_nothing_and_reuse_costs_more_the_more_there_is(recording: Recording) -> None:
    model = ScheduleError([recording])
    errors = [model.final_error([*range(0, 19, n), 19], NEUTRAL)[0] for n in (1, 2, 4, 8)]
    assert errors[0] == 0.0
    assert errors == sorted(errors)


def test_the_sensitivity_at_the_start_of_an_interval_scales_its_error(recording: Recording) -> None:
    model, full = ScheduleError([recording]), [step for step in range(20) if step != 10]
    tripled = model.final_error(full, ErrorPropagation((0.5,), (3.0,)))
    assert tripled == pytest.approx(9 * model.final_error(full, NEUTRAL))


def test_the_error_of_two_streams_is_the_mean_of_both_with_the_noise_levels_of_each(recording_of: Callable) -> None:
    picture, sound = recording_of(1, {}, 20), recording_of(2, {}, 20)
    levels = tuple(level**2 for level in sound.sigmas)
    response = tuple(0.5 * value for value in sound.scheduler_response)
    sound = replace(sound, sigmas=levels, scheduler_response=response)
    further = StreamRecording(sound.sigmas, sound.scheduler_response, sound.guided_norms, sound.guided_products)
    both, full = replace(picture, further=(further,)), [*range(8), 11, 12, 15, 16, 17, 18, 19]
    alone = [ScheduleError([one]).final_error(full, NEUTRAL, coherence=0.0) for one in (picture, sound)]
    assert ScheduleError([both]).final_error(full, NEUTRAL, coherence=0.0) == pytest.approx(sum(alone) / 2)
    weighted = ScheduleError([both], shares=(3.0, 1.0)).final_error(full, NEUTRAL, coherence=0.0)
    assert weighted == pytest.approx(0.75 * alone[0] + 0.25 * alone[1])


def test_the_planner_computes_the_steps_in_which_the_sound_changes(recording_of: Callable) -> None:
    """A sound that changes in its last steps alone moves the full steps there."""
    picture = recording_of(1, {}, 20)
    late = np.diag([1e-6] * 12 + [10.0] * 7)
    products = tuple(tuple(row) for row in late.tolist())
    further = StreamRecording(picture.sigmas, picture.scheduler_response, picture.guided_norms, products)
    alone, both = (
        best_schedules(ScheduleError([one]), 10, NEUTRAL, warmup=2)[10]
        for one in (picture, replace(picture, further=(further,)))
    )
    assert sum(step >= 12 for step in both) > sum(step >= 12 for step in alone)
