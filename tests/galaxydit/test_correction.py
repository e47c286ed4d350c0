"""The full step after reused ones makes up for what they missed."""

from dataclasses import replace
from typing import Any

import diffusers
import pytest
import torch
from diffusers import FlowMatchEulerDiscreteScheduler, WanPipeline
from torch import Tensor

import galaxydit
from galaxydit import FixedSteps, GalaxyDiTConfig, Observer, Threshold
from galaxydit.acceleration import Acceleration
from galaxydit.extrapolation import CORRECTED, CachedStep, correction, missed, predict
from galaxydit.runtime.call import Call
from galaxydit.runtime.scheduler_response import scheduler_response
from galaxydit.schedulers import draws_noise
from tests.galaxydit.test_acceleration import run
from tests.galaxydit.test_samplers import SCHEDULERS

STEPS = FixedSteps((0, 1, 2, 3, 4, 7, 8, 11))  # 5 and 6, 9 and 10 are reused


def outputs_of(pipe: WanPipeline, config: GalaxyDiTConfig, **changes: Any) -> list[Tensor]:
    """What each call of the transformer returned; both branches of a step follow each other."""
    found: list[Tensor] = []
    handle = pipe.transformer.register_forward_hook(lambda _, a, output: found.append(output[0].clone()))
    with galaxydit.accelerate(pipe, config=config):
        run(pipe, **changes)
    handle.remove()
    return found


def share_at_step_7(pipe: WanPipeline) -> float:
    """What steps 5 and 6 miss, in units of the error of reuse at step 7."""
    sigmas = pipe.scheduler.sigmas[:-1].tolist()
    return missed(sigmas, scheduler_response(pipe.scheduler, sigmas), 4, 7)


@pytest.mark.parametrize("order", [0, 1])
def test_a_full_step_adds_what_the_reused_steps_before_it_missed(tiny_wan_pipeline: WanPipeline, order: int) -> None:
    # Up to step 7 the latents are equal, so both runs see the same model there.
    plain, corrected = (
        outputs_of(tiny_wan_pipeline, GalaxyDiTConfig(STEPS, order=order, correction=wanted))
        for wanted in (False, True)
    )
    repeated = FixedSteps((0, 1, 2, 3, 4, 8, 11))  # predicts step 7, too
    predicted = outputs_of(tiny_wan_pipeline, GalaxyDiTConfig(repeated, order=order, correction=False))
    for call in range(14):
        assert torch.equal(plain[call], corrected[call])
    for call in (14, 15):
        added = CORRECTED[order] * share_at_step_7(tiny_wan_pipeline) * (plain[call] - predicted[call])
        assert added.abs().max() > 0
        torch.testing.assert_close(corrected[call], plain[call] + added)


def test_with_the_residual_reused_the_outputs_are_corrected_too(tiny_wan_pipeline: WanPipeline) -> None:
    plain, corrected = (
        outputs_of(tiny_wan_pipeline, GalaxyDiTConfig(STEPS, order=0, reuse="residual", correction=wanted))
        for wanted in (False, True)
    )
    repeated = FixedSteps((0, 1, 2, 3, 4, 8, 11))
    predicted = outputs_of(tiny_wan_pipeline, GalaxyDiTConfig(repeated, order=0, reuse="residual", correction=False))
    for call in (14, 15):
        added = share_at_step_7(tiny_wan_pipeline) * (plain[call] - predicted[call])
        assert added.abs().max() > 0
        torch.testing.assert_close(corrected[call], plain[call] + added)


def test_the_cache_holds_what_the_model_gave(tiny_wan_pipeline: WanPipeline) -> None:
    plain, corrected = (
        outputs_of(
            tiny_wan_pipeline, GalaxyDiTConfig(FixedSteps((0, 1, 2, 5)), order=0, keep_last=0, correction=wanted)
        )
        for wanted in (False, True)
    )
    assert not torch.equal(corrected[10], plain[10])
    for call in (12, 13, 14, 15):  # repeated from step 5
        assert torch.equal(corrected[call], plain[call])


@pytest.mark.parametrize("reuse", ["output", "residual"])
def test_samples_are_corrected_as_if_they_were_alone(tiny_wan_pipeline: WanPipeline, reuse: str) -> None:
    prompts = ["a red ball", "two blue cubes before a mountain"]
    config = GalaxyDiTConfig(Threshold(0.3), reuse=reuse)
    noise = torch.randn(2, 16, 2, 4, 4, generator=torch.Generator().manual_seed(1))
    with galaxydit.accelerate(tiny_wan_pipeline, config=config) as acceleration:
        together = run(tiny_wan_pipeline, prompt=prompts, latents=noise)
        calls = acceleration.report.calls
        for place, prompt in enumerate(prompts):
            alone = run(tiny_wan_pipeline, prompt=prompt, latents=noise[place : place + 1])
            torch.testing.assert_close(together[place : place + 1], alone, atol=1e-4, rtol=1e-4)
    assert {call.sample for call in calls if call.reused} == {0, 1}
    assert any(not call.reused and call.step > 5 for call in calls)


@pytest.mark.parametrize("name", [name for name in SCHEDULERS if not name.endswith("SDE")])
@pytest.mark.parametrize("every", [2, 3, 4])
@pytest.mark.parametrize(("order", "left"), [(0, 0.6), (1, 0.8)])
def test_it_brings_the_latent_nearer_to_that_of_full_steps(name: str, every: int, order: int, left: float) -> None:
    first = torch.tensor([1.0, -2.0, 0.5], dtype=torch.double).reshape(1, 3, 1, 1, 1)
    scheduler = SCHEDULERS[name]()
    scheduler.set_timesteps(30)
    sigmas = scheduler.sigmas[:-1].tolist()
    response, calls = scheduler_response(scheduler, sigmas), len(sigmas)

    def latent(steps: range, corrects: bool) -> torch.Tensor:
        scheduler.set_timesteps(30)
        found, history = first, ()
        for step, timestep in enumerate(scheduler.timesteps):
            is_full = step < 3 or step in steps or step >= calls - 2
            output = torch.exp(sigmas[step] * first) if is_full else predict(history, sigmas[step], order)
            if is_full:
                computed = CachedStep(step, sigmas[step], output)
                if corrects and history and step < calls - 1:
                    share = missed(sigmas, response, history[-1].step, step)
                    output = output + correction(output, predict(history, sigmas[step], order), share, order)
                history = (*history, computed)[-order - 1 :]
            found = scheduler.step(output, timestep, found, return_dict=False)[0]
        return found

    exact = latent(range(calls), False)
    plain, corrected = (float((latent(range(0, calls, every), corrects) - exact).norm()) for corrects in (False, True))
    assert corrected < left * plain


def test_the_last_step_is_left_alone(tiny_wan_pipeline: WanPipeline) -> None:
    steps = FixedSteps((0, 1, 2, 3, 4, 5, 6, 7, 8, 11))
    plain, corrected = (
        outputs_of(tiny_wan_pipeline, GalaxyDiTConfig(steps, correction=wanted)) for wanted in (False, True)
    )
    assert all(map(torch.equal, plain, corrected))


@pytest.mark.parametrize(("changes", "corrects"), [({}, True), ({"stochastic_sampling": True}, False)])
def test_schedulers_that_draw_noise_are_left_alone(
    tiny_wan_pipeline: WanPipeline, changes: dict[str, bool], corrects: bool
) -> None:
    tiny_wan_pipeline.scheduler = FlowMatchEulerDiscreteScheduler(shift=5.0, **changes)
    outputs = []
    for wanted in (False, True):
        torch.manual_seed(0)
        outputs.append(outputs_of(tiny_wan_pipeline, GalaxyDiTConfig(STEPS, correction=wanted))[14])
    assert torch.equal(*outputs) is not corrects


def test_without_a_known_scheduler_nothing_is_corrected_and_the_report_says_so(tiny_wan_pipeline: WanPipeline) -> None:
    latents = []
    for wanted in (False, True):
        config = GalaxyDiTConfig(STEPS, correction=wanted)
        with galaxydit.accelerate(tiny_wan_pipeline.transformer, config=config) as acceleration:
            latents.append(run(tiny_wan_pipeline))
    assert torch.equal(*latents)
    assert "scheduler is unknown" in acceleration.report.notes[0]


@pytest.mark.parametrize(
    ("name", "changes", "draws"),
    [
        ("CogVideoXDPMScheduler", {}, True),
        ("DPMSolverMultistepScheduler", {"algorithm_type": "sde-dpmsolver++"}, True),
        ("EulerAncestralDiscreteScheduler", {}, True),
        ("SASolverScheduler", {}, True),
        ("CogVideoXDDIMScheduler", {}, False),
        ("DPMSolverMultistepScheduler", {}, False),
        ("EDMDPMSolverMultistepScheduler", {}, False),
        ("UniPCMultistepScheduler", {}, False),
    ],
)
def test_it_is_known_which_schedulers_draw_noise(name: str, changes: dict[str, str], draws: bool) -> None:
    scheduler = getattr(diffusers, name)(**changes)
    assert draws_noise(scheduler) is draws
    if name.startswith("CogVideoX"):
        return  # their steps ask for more
    found, latent = [], torch.ones(1, 4, 2, 4, 4)
    for seed in (0, 1):
        torch.manual_seed(seed)
        scheduler.set_timesteps(8)
        found.append(scheduler.step(latent / 2, scheduler.timesteps[4], latent)[0])
    assert torch.equal(*found) is not draws


def test_observers_see_the_model_once_and_before_the_correction(tiny_wan_pipeline: WanPipeline) -> None:
    class Watches(Observer):
        modules = ("condition_embedder",)

        def __init__(self) -> None:
            self.seen: list[int] = []
            self.outputs: dict[tuple[int, str], Tensor] = {}

        def on_module(self, call: Call, path: str, output: Any) -> None:
            self.seen.append(call.info.step)

        def on_output(self, call: Call, output: Tensor) -> None:
            self.outputs[call.info.step, call.branch] = output.clone()

    config = GalaxyDiTConfig(STEPS, order=0, reuse="residual")
    expected = outputs_of(tiny_wan_pipeline, replace(config, correction=False))[14]
    observer = Watches()
    with Acceleration(tiny_wan_pipeline, config, observer=observer):
        run(tiny_wan_pipeline)
    assert observer.seen == [step for step in range(12) for _ in range(2)]
    assert torch.equal(observer.outputs[7, "cond"], expected)
