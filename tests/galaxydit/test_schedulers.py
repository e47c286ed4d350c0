"""What the table says of schedulers, and the noise levels and weights of their steps."""

from types import SimpleNamespace
from typing import Any

import diffusers
import pytest
import torch
from diffusers import (
    CogVideoXDDIMScheduler,
    DDIMScheduler,
    DDPMScheduler,
    DPMSolverMultistepScheduler,
    EulerDiscreteScheduler,
    FlowMatchEulerDiscreteScheduler,
    KDPM2AncestralDiscreteScheduler,
    PNDMScheduler,
    UniPCMultistepScheduler,
)
from diffusers.hooks.hooks import CacheContext
from torch.utils._python_dispatch import TorchDispatchMode

from galaxydit.runtime.clean import mix_of, weights_of_input
from galaxydit.schedulers import (
    Noise,
    counter_of,
    draws_noise,
    kind_of,
    noise_level,
    noise_of,
    prediction_type,
    sigma_at,
    sigmas_of,
    values_of,
)

FLOW = {"prediction_type": "flow_prediction", "use_flow_sigmas": True, "flow_shift": 3.0}

# The kinds of schedulers

DRAWN = (
    "CMStochasticIterativeScheduler",
    "CogVideoXDPMScheduler",
    "DDPMParallelScheduler",
    "DDPMScheduler",
    "DDPMWuerstchenScheduler",
    "EulerAncestralDiscreteScheduler",
    "FlowMatchLCMScheduler",
    "HeliosDMDScheduler",
    "KDPM2AncestralDiscreteScheduler",
    "LCMScheduler",
    "LTXEulerAncestralRFScheduler",
    "RePaintScheduler",
    "SASolverScheduler",
    "SCMScheduler",
    "TCDScheduler",
    "UnCLIPScheduler",
)
POSSIBLE = (
    "CogVideoXDDIMScheduler",
    "DDIMParallelScheduler",
    "DDIMScheduler",
    "EDMEulerScheduler",
    "EulerDiscreteScheduler",
)
NONE = (
    "DEISMultistepScheduler",
    "DPMSolverMultistepScheduler",
    "DPMSolverSinglestepScheduler",
    "EDMDPMSolverMultistepScheduler",
    "FlowMapEulerDiscreteScheduler",
    "FlowMatchEulerDiscreteScheduler",
    "FlowMatchHeunDiscreteScheduler",
    "HeliosScheduler",
    "IPNDMScheduler",
    "KDPM2DiscreteScheduler",
    "PNDMScheduler",
    "UniPCMultistepScheduler",
)
KINDS = dict.fromkeys(DRAWN, Noise.DRAWN) | dict.fromkeys(POSSIBLE, Noise.POSSIBLE) | dict.fromkeys(NONE, Noise.NONE)


@pytest.mark.parametrize(("name", "kind"), KINDS.items())
def test_whether_a_scheduler_draws_noise_is_known(name: str, kind: Noise) -> None:
    scheduler = getattr(diffusers, name)()
    assert noise_of(scheduler) is kind
    assert draws_noise(scheduler) is (kind is Noise.DRAWN)


def test_a_configuration_can_make_a_scheduler_draw_noise() -> None:
    assert noise_of(FlowMatchEulerDiscreteScheduler(stochastic_sampling=True)) is Noise.DRAWN
    assert noise_of(DPMSolverMultistepScheduler(algorithm_type="sde-dpmsolver++")) is Noise.DRAWN
    assert noise_of(DPMSolverMultistepScheduler(algorithm_type="dpmsolver++")) is Noise.NONE


def test_without_a_scheduler_the_noise_is_unknown() -> None:
    assert noise_of(None) is Noise.UNKNOWN
    assert not draws_noise(None)


@pytest.mark.parametrize(
    ("scheduler", "kind"),
    [
        (FlowMatchEulerDiscreteScheduler(), "flow_prediction"),
        (UniPCMultistepScheduler(**FLOW), "flow_prediction"),
        (DDPMScheduler(), "epsilon"),
        (CogVideoXDDIMScheduler(prediction_type="v_prediction"), "v_prediction"),
        (DDIMScheduler(prediction_type="sample"), "sample"),
        (UniPCMultistepScheduler(use_flow_sigmas=True, prediction_type="epsilon"), None),
        (DPMSolverMultistepScheduler(algorithm_type="sde-dpmsolver", final_sigmas_type="sigma_min"), None),
        (SimpleNamespace(config=SimpleNamespace(prediction_type="other")), None),
        (None, None),
    ],
)
def test_what_the_model_predicts_is_known(scheduler: Any, kind: str | None) -> None:
    assert prediction_type(scheduler) == kind


def test_a_scheduler_of_a_subclass_or_another_package_is_known_by_its_name() -> None:
    class MyFlowMatchScheduler:
        pass

    class MyAncestralScheduler:
        pass

    assert kind_of(MyFlowMatchScheduler()).is_flow
    assert not kind_of(MyFlowMatchScheduler()).draws_noise
    assert kind_of(MyAncestralScheduler()).draws_noise


# Where a scheduler is


def test_the_counter_of_a_scheduler_is_known_however_it_is_named() -> None:
    assert counter_of(None) is None
    assert counter_of(DDIMScheduler()) is None, "DDIM has no counter"
    scheduler = UniPCMultistepScheduler()
    scheduler.set_timesteps(4)
    assert counter_of(scheduler) is None
    latent = torch.zeros(1, 4, 2, 2)
    scheduler.step(latent, scheduler.timesteps[0], latent)
    assert counter_of(scheduler) == 1
    other = PNDMScheduler(skip_prk_steps=True)
    other.set_timesteps(4)
    for step in range(2):
        assert counter_of(other) == step
        other.step(latent, other.timesteps[step], latent)


# Noise levels


def test_a_first_sigma_rounded_to_a_little_more_than_1_is_1() -> None:
    scheduler = FlowMatchEulerDiscreteScheduler(shift=0.4)
    scheduler.set_timesteps(50)
    assert scheduler.sigmas[0] > 1
    sigmas = sigmas_of(scheduler, 50)
    assert sigmas is not None
    assert sigmas[0] == 1.0
    assert sigmas[1:] == pytest.approx(scheduler.sigmas[1:50].tolist())


def test_noise_levels_that_are_changed_in_place_are_read_again() -> None:
    scheduler = FlowMatchEulerDiscreteScheduler()
    scheduler.set_timesteps(4)
    before = sigmas_of(scheduler, 4)
    scheduler.sigmas.mul_(0.5)
    assert before is not None
    assert sigmas_of(scheduler, 4) == tuple(sigma / 2 for sigma in before)


@pytest.mark.parametrize("sigmas", [[0.5, 0.6, 0.1], [0.5, 0.1]])
def test_noise_levels_that_rise_and_fall_or_are_too_few_are_not_told(sigmas: list[float]) -> None:
    assert sigmas_of(SimpleNamespace(sigmas=sigmas), 3) is None


@pytest.mark.parametrize("sigmas", [[9.0, 1.0, 0.25, 0.0], [0.1, 0.5, 0.8, 1.0]], ids=["exploding", "inverted"])
def test_noise_levels_of_other_schedulers_become_the_weight_of_the_noise(sigmas: list[float]) -> None:
    assert sigmas_of(SimpleNamespace(sigmas=sigmas), 3) == pytest.approx((0.9, 0.5, 0.2))
    assert [noise_level(sigma, sigmas) for sigma in sigmas[:3]] == pytest.approx([0.9, 0.5, 0.2])


class Reads(TorchDispatchMode):
    """Notes each operation on tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.functions: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.functions.append(str(function))
        return function(*args, **(kwargs or {}))


def test_the_noise_levels_of_a_schedule_are_read_once() -> None:
    """They may lie on the GPU, where each read waits for all that is queued."""
    scheduler = SimpleNamespace(timesteps=torch.tensor([900.0, 500.0, 200.0]), sigmas=torch.tensor([0.9, 0.5, 0.2, 0]))
    without_sigmas = SimpleNamespace(timesteps=scheduler.timesteps)
    for known in (scheduler, without_sigmas):
        first = sigma_at(None, known, 1, None)
        with Reads() as reads:
            assert sigma_at(None, known, 1, None) == first == pytest.approx(0.5)
            assert sigma_at(None, known, 2, None) == pytest.approx(0.2)
        assert not reads.functions


def test_values_of_an_inference_tensor_that_does_not_change_are_read_once() -> None:
    with torch.inference_mode():
        values = torch.tensor([1.0, 2.0])
    assert values_of(values) == [1.0, 2.0]
    assert values_of(values) is values_of(values)


def test_the_noise_level_of_a_step_is_the_contexts_then_the_schedulers_then_the_timesteps() -> None:
    scheduler = FlowMatchEulerDiscreteScheduler(shift=3.0)
    scheduler.set_timesteps(5)
    timestep = torch.tensor([300.0, 700.0])  # given tokens have a smaller one
    stated = CacheContext("cond", sigma=0.25)
    assert sigma_at(stated, scheduler, 2, timestep) == 0.25
    assert sigma_at(stated, None, 2, timestep) == 0.25
    assert sigma_at(CacheContext("cond"), scheduler, 2, timestep) == float(scheduler.sigmas[2])
    ddim = DDIMScheduler()
    ddim.set_timesteps(5)
    assert sigma_at(None, ddim, 2, timestep) == float(ddim.timesteps[2]) / 1000
    assert sigma_at(None, None, 2, timestep) == pytest.approx(0.7)
    assert sigma_at(None, None, 2, 700) == pytest.approx(0.7)
    assert sigma_at(CacheContext("cond", sigma=9.0), SimpleNamespace(sigmas=[9.0, 1.0, 0.0]), 0, None) == 0.9


# Weights of clean video and noise

SCHEDULERS = [
    FlowMatchEulerDiscreteScheduler(shift=3.0),
    UniPCMultistepScheduler(**FLOW),
    DDIMScheduler(),
    DDIMScheduler(prediction_type="v_prediction"),
    DDIMScheduler(prediction_type="sample"),
    EulerDiscreteScheduler(),
    DPMSolverMultistepScheduler(),
]


@pytest.mark.parametrize("scheduler", SCHEDULERS, ids=lambda scheduler: type(scheduler).__name__)
def test_the_weights_give_the_output_of_a_model_that_knows_the_clean_video(scheduler: Any) -> None:
    clean, noise = (torch.randn(64, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
    scheduler.set_timesteps(8)
    for step in range(1, 7):
        weights, mix = weights_of_input(scheduler, step), mix_of(scheduler, step)
        assert weights is not None
        assert mix is not None
        signal, sigma = weights
        model_input = signal * clean + sigma * noise
        expected = {
            "epsilon": noise,
            "v_prediction": signal * noise - sigma * clean,
            "flow_prediction": noise - clean,
            "sample": clean,
        }[str(prediction_type(scheduler))]
        assert torch.allclose(mix.of_input * model_input + mix.of_clean * clean, expected, atol=1e-3)
        if not kind_of(scheduler).is_flow:
            assert signal**2 + sigma**2 == pytest.approx(1.0)


def test_the_weights_of_a_scheduler_without_known_levels_are_unknown() -> None:
    assert weights_of_input(None, 1) is None
    assert mix_of(None, 1) is None
    assert weights_of_input(SimpleNamespace(sigmas=[9.0, 1.0, 0.0]), 0) is None, "no scheduler of a known kind"
    scheduler = FlowMatchEulerDiscreteScheduler()
    scheduler.set_timesteps(4)
    assert mix_of(scheduler, 4) is None, "no noise is left after the last step"


def test_second_order_steps_of_kdpm2_ancestral_have_the_noise_level_that_scales_their_input() -> None:
    scheduler, latent = KDPM2AncestralDiscreteScheduler(), torch.ones(1, 4, 2, 2)
    scheduler.set_timesteps(6)
    for step, timestep in enumerate(scheduler.timesteps[:6]):
        scaled = scheduler.scale_model_input(latent, timestep)
        weights = weights_of_input(scheduler, step)
        assert weights is not None
        assert weights[0] == pytest.approx(float(scaled.mean()), rel=1e-4)
        scheduler.step(latent, timestep, latent)
