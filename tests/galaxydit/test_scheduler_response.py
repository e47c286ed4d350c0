from typing import Any

import pytest
import torch
from diffusers import (
    CogVideoXDPMScheduler,
    DPMSolverMultistepScheduler,
    FlowMatchEulerDiscreteScheduler,
    FlowMatchHeunDiscreteScheduler,
    UniPCMultistepScheduler,
)

from galaxydit.runtime.scheduler_response import scheduler_response

STEPS = 20
DYNAMIC = UniPCMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True, use_dynamic_shifting=True)
MULTISTEP = [
    UniPCMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0),
    DPMSolverMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0),
]


def sigmas_of(scheduler: Any) -> tuple[float, ...]:
    return tuple(scheduler.sigmas[:-1].tolist())


def euler(sigmas: tuple[float, ...]) -> list[float]:
    return [high - low for high, low in zip(sigmas, (*sigmas[1:], 0.0), strict=True)]


@pytest.mark.parametrize("scheduler", [*MULTISTEP, DYNAMIC])
def test_the_response_to_fixed_predictions_gives_the_schedulers_own_latent(scheduler: Any) -> None:
    scheduler.set_timesteps(STEPS, **({"mu": 0.8} if scheduler is DYNAMIC else {}))
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


def test_timesteps_of_the_pipelines_own_are_followed() -> None:
    usual, own = (UniPCMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True) for _ in range(2))
    for scheduler in (usual, own):
        scheduler.set_timesteps(STEPS)
    own.sigmas = own.sigmas**2
    own.timesteps = (own.sigmas[:-1] * 1000).long()
    response = scheduler_response(own, sigmas_of(own))
    assert sum(response) == pytest.approx(sigmas_of(own)[0], abs=1e-3)
    assert response != pytest.approx(euler(sigmas_of(own)), rel=0.05)
    assert response != pytest.approx(scheduler_response(usual, sigmas_of(usual)), rel=0.05)


def test_every_call_of_a_scheduler_that_calls_twice_a_step_has_its_weight() -> None:
    scheduler = FlowMatchHeunDiscreteScheduler(shift=3.0)
    scheduler.set_timesteps(STEPS)
    response = scheduler_response(scheduler, scheduler.sigmas[:-1].tolist())
    assert len(response) == 2 * STEPS - 1
    assert min(response) > 0.1 / STEPS


def test_a_generation_that_begins_in_the_middle_has_no_weights_before() -> None:
    scheduler = MULTISTEP[0]
    scheduler.set_timesteps(STEPS)
    sigmas = sigmas_of(scheduler)
    response = scheduler_response(scheduler, sigmas, 8)
    assert response[:8] == (0.0,) * 8
    assert sum(response) == pytest.approx(sigmas[8], abs=1e-3)


def test_the_random_state_is_left_alone() -> None:
    scheduler = FlowMatchEulerDiscreteScheduler(stochastic_sampling=True)
    scheduler.set_timesteps(STEPS)
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    scheduler_response(scheduler, sigmas_of(scheduler))
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("error", [KeyError, AssertionError, NotImplementedError])
def test_whatever_a_scheduler_raises_is_no_error_of_the_generation(error: type[Exception]) -> None:
    class Refuses(FlowMatchEulerDiscreteScheduler):
        def step(self, *_: Any, **__: Any) -> Any:
            raise error

    scheduler = Refuses()
    scheduler.set_timesteps(STEPS)
    assert scheduler_response(scheduler, sigmas_of(scheduler)) == tuple(euler(sigmas_of(scheduler)))


def test_outputs_that_the_pipeline_scales_count_by_lengths_in_noise_level() -> None:
    scheduler = FlowMatchEulerDiscreteScheduler(use_karras_sigmas=True)  # as Cosmos-Predict2 runs it
    scheduler.set_timesteps(sigmas=[80.0, 20.0, 5.0, 1.0, 0.2])
    levels = [sigma / (1 + sigma) for sigma in sigmas_of(scheduler)]
    assert scheduler_response(scheduler, levels) == tuple(euler(tuple(levels)))


def test_it_is_measured_once_for_equal_settings() -> None:
    steps: list[int] = []

    class Counted(UniPCMultistepScheduler):
        def step(self, *given: Any, **options: Any) -> Any:
            steps.append(self.step_index or 0)
            return super().step(*given, **options)

    found = []
    for shift, count in ((3.0, STEPS), (3.0, STEPS), (5.0, STEPS), (3.0, STEPS - 1), (3.0, STEPS)):
        scheduler = Counted(prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=shift)
        scheduler.set_timesteps(count)
        found.append(scheduler_response(scheduler, sigmas_of(scheduler)))
    assert len(steps) == 3 * STEPS - 1
    assert found[0] == found[1] == found[4]
    assert len(set(found)) == 3
