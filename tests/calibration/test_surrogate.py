"""The surrogate against diffusers' scheduler, an independent denoiser, and published PSNRs of the real weights."""

import numpy as np
import pytest
import torch
from diffusers import UniPCMultistepScheduler

from galaxydit.calibration.published import load_published
from galaxydit.calibration.published_plan import published_surrogates
from galaxydit.calibration.surrogate.directions import DISTRIBUTIONS, FOUR, SPARSE, Directions, Distribution
from galaxydit.calibration.surrogate.solver import unipc
from galaxydit.calibration.surrogate.step_lists import METHODS, determines_offset, predicted_psnrs
from galaxydit.calibration.surrogate.surrogate import Rule, generate
from galaxydit.extrapolation import CachedStep, correction, missed, predict, remember
from galaxydit.runtime.scheduler_response import scheduler_response

ROWS = load_published().step_lists
PUBLISHED_PSNRS = [row.psnr for row in ROWS]
FULL = frozenset((0, 1, 2, 3, 5, 8, 12, 15, 19))


def scheduler_of(flow_shift: float, steps: int) -> UniPCMultistepScheduler:
    scheduler = UniPCMultistepScheduler(
        prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=flow_shift, num_train_timesteps=1000
    )
    scheduler.set_timesteps(steps)
    return scheduler


@pytest.mark.parametrize("distribution", [FOUR, SPARSE])
def test_the_denoiser_is_the_score_of_the_density(distribution: Distribution) -> None:
    directions, sigma, width = Directions(distribution, np.array([0.3, 2.0])), 0.6, 1e-4
    latent = torch.linspace(-2, 2, 9, dtype=torch.float64).repeat(2, 1)

    def log_density(at: torch.Tensor) -> torch.Tensor:
        values = torch.tensor(np.sqrt(directions.variances)[:, None, None] * distribution.unit_values)
        chances = torch.tensor(distribution.probabilities)
        return (chances * torch.exp(-((at[..., None] - (1 - sigma) * values) ** 2) / (2 * sigma**2))).sum(-1).log()

    score = (log_density(latent + width) - log_density(latent - width)) / (2 * width)
    clean = (latent + sigma**2 * score) / (1 - sigma)  # Tweedie's formula
    torch.testing.assert_close(directions.velocity(latent, sigma), (latent - clean) / sigma, atol=1e-5, rtol=1e-5)


def test_the_response_is_the_one_that_the_runtime_measures() -> None:
    solver, scheduler = unipc(5.0, 30), scheduler_of(5.0, 30)
    expected = scheduler_response(scheduler, scheduler.sigmas[:-1].tolist())
    assert solver.response == pytest.approx(expected, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("rule", [Rule(), Rule(correction=1.0), Rule(1, 0.7, 1.0, 0.75)])
def test_a_generation_is_that_of_the_scheduler_with_the_runtimes_rule(rule: Rule) -> None:
    directions, scheduler = Directions(FOUR, np.array([0.1, 1.0, 50.0])), scheduler_of(3.0, 20)
    noise = torch.linspace(0.1, 2.5, 7, dtype=torch.float64).repeat(3, 1)
    final, given = generate(directions, unipc(3.0, 20), noise, FULL, rule)
    sigmas, response = scheduler.sigmas[:-1].tolist(), unipc(3.0, 20).response
    latent, history = noise.reshape(1, 1, 1, 3, 7), ()
    for step, timestep in enumerate(scheduler.timesteps):
        if step in FULL:
            output = computed = directions.velocity(latent[0, 0, 0], sigmas[step])
            if rule.correction and history and step - history[-1].step > 1 and step < 19:
                weight = missed(sigmas, response, history[-1].step, step)
                reused = predict(history, sigmas[step], rule.order, rule.slope, rule.largest_ahead)
                computed = output + correction(output, reused, weight, rule.order, rule.correction)
            history = remember(history, CachedStep(step, sigmas[step], output), rule.order + 1)
        else:
            computed = predict(history, sigmas[step], rule.order, rule.slope, rule.largest_ahead)
        torch.testing.assert_close(given[step], computed, atol=1e-4, rtol=1e-4)
        latent = scheduler.step(computed.reshape(latent.shape), timestep, latent, return_dict=False)[0]
    torch.testing.assert_close(final, latent[0, 0, 0], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("place", range(len(DISTRIBUTIONS)))
def test_the_surrogates_reproduce_the_published_rows(place: int) -> None:
    surrogate = published_surrogates()[place]
    assert surrogate.fitted == pytest.approx(1, abs=0.2)  # the curvature of all steps
    predicted = predicted_psnrs(surrogate, ROWS, PUBLISHED_PSNRS)
    rows = {row.name: psnr for row, psnr in zip(ROWS, predicted, strict=True)}
    fitted = [abs(psnr - row.psnr) for row, psnr in zip(ROWS, predicted, strict=True) if determines_offset(row)]
    assert len(fitted) == 5
    assert np.mean(fitted) < 0.9
    assert rows["TaylorSeer, shift 3"] == pytest.approx(16.96, abs=2)
    assert 11 < rows["first 10 steps, shift 5"] < 14  # published 17.0
    assert rows["25 plain steps, shift 3"] < rows["TaylorSeer, shift 3"] < rows["18 steps, shift 3"]


@pytest.mark.parametrize("place", range(len(DISTRIBUTIONS)))
def test_taylorseers_loss_comes_from_its_early_steps_not_from_the_order(place: int) -> None:
    surrogate, (taylor,) = published_surrogates()[place], (row for row in ROWS if row.method == "TaylorSeer")
    (early,) = (row for row in ROWS if row.name == "18 steps, shift 3")
    order_0, order_1 = (surrogate.level(set(taylor.steps), METHODS[method], 3.0) for method in (None, "TaylorSeer"))
    assert abs(order_0 - order_1) < 1.5
    assert surrogate.level(set(early.steps), Rule(), 3.0) > order_0 + 2
