from types import SimpleNamespace
from typing import Any

import pytest
import torch
from diffusers import FlowMatchEulerDiscreteScheduler
from diffusers.hooks.hooks import CacheContext
from torch.utils._python_dispatch import TorchDispatchMode

from galaxydit.adapters import adapter_states
from galaxydit.runtime.step import StepInfo, driving, locate, sigmas_of, timesteps_address


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


def test_the_noise_levels_of_a_schedule_are_read_once() -> None:
    """They may lie on the GPU, where each read waits for all that is queued."""
    reads = []

    class Reads(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            reads.append(str(function))
            return function(*args, **(kwargs or {}))

    scheduler = SimpleNamespace(timesteps=torch.tensor([900.0, 500.0, 200.0]), sigmas=torch.tensor([0.9, 0.5, 0.2, 0]))
    context = CacheContext("cond", step_index=1, num_inference_steps=3)
    first = locate(context, scheduler, None)
    with Reads():
        assert locate(context, scheduler, None) == first == StepInfo(1, 3, 0.5)
    assert not reads


def test_the_timesteps_of_a_pipeline_are_known_by_their_memory() -> None:
    ours, others = torch.linspace(999, 1, 12), torch.linspace(999, 1, 12)
    assert timesteps_address(ours[3].expand(2)) == timesteps_address(ours[4]) != timesteps_address(others[4].expand(1))
    by_token = torch.full((6,), 500).unsqueeze(0).expand(2, -1)
    for alone in (None, 500, torch.tensor(500), torch.full((2,), 500), ours[3].expand(2).clone(), by_token):
        assert timesteps_address(alone) is None


def test_a_scheduler_drives_the_calls_that_have_its_noise_levels_and_timesteps() -> None:
    ours, others = (FlowMatchEulerDiscreteScheduler(shift=3.0) for _ in range(2))
    for scheduler in (ours, others):
        scheduler.set_timesteps(5)
    context = CacheContext("cond", step_index=2, num_inference_steps=5, sigma=float(ours.sigmas[2]))
    assert driving(context, ours, ours.timesteps[2].expand(2)) is ours
    assert driving(context, ours, torch.tensor(500)) is ours
    assert driving(None, ours, ours.timesteps[2]) is ours
    assert driving(None, ours, others.timesteps[2]) is None
    assert driving(context, ours, others.timesteps[2].expand(2)) is None
    others.set_timesteps(9)
    assert driving(context, others, torch.tensor(500)) is None


def test_a_stated_timestep_finds_the_step_that_a_scaled_one_does_not() -> None:
    scheduler = FlowMatchEulerDiscreteScheduler(shift=3.0)
    scheduler.set_timesteps(5)
    t = scheduler.timesteps[3]
    scaled = t.expand(2) / 1000
    assert locate(CacheContext("cond"), scheduler, scaled) == StepInfo(0, 5, 1.0), "the start is assumed without it"
    for stated in (t, float(t)):
        context = CacheContext("cond", timestep=stated)
        assert locate(context, scheduler, scaled) == StepInfo(3, 5, float(scheduler.sigmas[3]))
        assert locate(context, scheduler, None) == StepInfo(3, 5, float(scheduler.sigmas[3]))
    assert timesteps_address(scaled, t) == timesteps_address(t)
    assert locate(CacheContext("cond", timestep=t), scheduler, scheduler.timesteps[:2]) is None, "frames differ in step"


def test_a_context_alone_tells_the_step_and_the_noise_level() -> None:
    context = CacheContext("cond", step_index=2, num_inference_steps=9, timestep=torch.tensor(700.0))
    assert locate(context, None, None) == StepInfo(2, 9, pytest.approx(0.7))


def test_scaling_and_unscaling_an_adapter_leaves_its_scale() -> None:
    assert 0.85 * 0.6 / 0.6 != 0.85
    layer: Any = torch.nn.Linear(2, 2)
    layer.active_adapters, layer.disable_adapters, layer.merged = ["style"], False, False
    transformer: Any = torch.nn.Sequential(layer)
    transformer._hf_peft_config_loaded = True
    states = []
    for value in (0.85, 0.85 * 0.6 / 0.6, 0.86):
        layer.scaling = {"style": value}
        states.append(adapter_states(transformer))
    assert states[0] == states[1] != states[2]
