from typing import Any

import pytest
import torch
from diffusers import (
    CogVideoXDPMScheduler,
    DPMSolverMultistepScheduler,
    FlowMatchEulerDiscreteScheduler,
    UniPCMultistepScheduler,
)

from galaxydit.calibration.scheduler_response import scheduler_response

STEPS = 20
MULTISTEP = [
    UniPCMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0),
    DPMSolverMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0),
]


def sigmas_of(scheduler: Any) -> tuple[float, ...]:
    return tuple(scheduler.sigmas[:STEPS].tolist())


def euler(sigmas: tuple[float, ...]) -> list[float]:
    return [high - low for high, low in zip(sigmas, (*sigmas[1:], 0.0), strict=True)]


@pytest.mark.parametrize("scheduler", MULTISTEP)
def test_the_response_to_fixed_predictions_gives_the_schedulers_own_latent(scheduler: Any) -> None:
    scheduler.set_timesteps(STEPS)
    response = scheduler_response(scheduler, sigmas_of(scheduler))
    draw = torch.Generator().manual_seed(0)
    noise, predictions = torch.randn(1, 2, 1, 3, 3, generator=draw), torch.randn(STEPS, 1, 2, 1, 3, 3, generator=draw)
    latent = noise
    for timestep, prediction in zip(scheduler.timesteps, predictions, strict=True):
        latent = scheduler.step(prediction, timestep, latent, return_dict=False)[0]
    expected = noise - torch.einsum("s,sbcfhw->bcfhw", torch.tensor(response), predictions)
    torch.testing.assert_close(latent, expected, atol=1e-4, rtol=1e-3)
    assert response != pytest.approx(euler(sigmas_of(scheduler)), rel=0.05)


def test_it_leaves_the_scheduler_as_it_stands_in_its_generation() -> None:
    scheduler = MULTISTEP[0]
    scheduler.set_timesteps(STEPS)
    scheduler.step(torch.ones(1, 1), scheduler.timesteps[0], torch.ones(1, 1))
    before = (scheduler.step_index, scheduler.timesteps.clone(), [o is None for o in scheduler.model_outputs])
    scheduler_response(scheduler, sigmas_of(scheduler))
    after = (scheduler.step_index, scheduler.timesteps, [o is None for o in scheduler.model_outputs])
    assert before[0] == after[0]
    assert torch.equal(before[1], after[1])
    assert before[2] == after[2]


def test_eulers_own_scheduler_has_eulers_response() -> None:
    scheduler = FlowMatchEulerDiscreteScheduler(shift=3.0)
    scheduler.set_timesteps(STEPS)
    sigmas = sigmas_of(scheduler)
    assert scheduler_response(scheduler, sigmas) == pytest.approx(euler(sigmas), abs=1e-5)


@pytest.mark.parametrize(
    "scheduler",
    [
        FlowMatchEulerDiscreteScheduler(stochastic_sampling=True),  # adds noise
        DPMSolverMultistepScheduler(thresholding=True),  # clips
        CogVideoXDPMScheduler(),  # wants to know more
    ],
    ids=lambda scheduler: type(scheduler).__name__,
)
def test_a_scheduler_that_is_not_linear_or_wants_more_is_taken_for_eulers(scheduler: Any) -> None:
    scheduler.set_timesteps(STEPS)
    sigmas = tuple(1 - step / STEPS for step in range(STEPS))
    assert scheduler_response(scheduler, sigmas) == pytest.approx(euler(sigmas))


def test_timesteps_that_a_fresh_scheduler_does_not_arrive_at_are_taken_for_eulers() -> None:
    shifted = FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True)
    shifted.set_timesteps(STEPS, mu=0.8)
    own = UniPCMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True)
    own.set_timesteps(STEPS)
    own.timesteps = own.timesteps - 1
    sigmas = tuple(1 - step / STEPS for step in range(STEPS))
    for scheduler in (shifted, own):
        assert scheduler_response(scheduler, sigmas) == pytest.approx(euler(sigmas))
