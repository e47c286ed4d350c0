"""Transformers with two outputs, each stepped by a scheduler of its own: each stream keeps its own noise levels."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from diffusers import FlowMatchEulerDiscreteScheduler, UniPCMultistepScheduler
from torch import Tensor, nn
from two_streams import FAMILY, TwoStreams
from two_streams import latents as noise

import galaxydit
from galaxydit.config import GalaxyDiTConfig
from galaxydit.errors import FullComputeWarning, GalaxyDiTError
from galaxydit.families import FAMILIES
from galaxydit.policies.general_schedule import general_schedule
from galaxydit.report import Report

STEPS = 20
SCHEDULERS: dict[str, Callable[[float], Any]] = {
    "UniPC": lambda shift: UniPCMultistepScheduler(
        prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=shift
    ),
    "Euler": lambda shift: FlowMatchEulerDiscreteScheduler(shift=shift),
}


@pytest.fixture(autouse=True)
def family(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FAMILIES, FAMILY.class_name, FAMILY)


def config(speedup: float, **settings: Any) -> GalaxyDiTConfig:
    return GalaxyDiTConfig(policy=general_schedule(speedup), few_steps=0, **{"slope": 1.0} | settings)


def denoise(transformer: nn.Module, video: Any, audio: Any, replaced: int | None = None) -> tuple[Tensor, Tensor]:
    """The latents of both streams; at the step `replaced`, the sound's latent is another one."""
    latent, sound = noise()
    video.set_timesteps(STEPS)
    audio.set_timesteps(STEPS)
    with torch.no_grad():
        for step, timestep in enumerate(video.timesteps):
            if step == replaced:
                sound = sound + 1
            levels = 1000 * video.sigmas[step], 1000 * audio.sigmas[step]  # UniPC rounds its timesteps
            prediction, prediction_of_sound = transformer(latent, sound, *levels)
            latent = video.step(prediction, timestep, latent, return_dict=False)[0]
            sound = audio.step(prediction_of_sound, audio.timesteps[step], sound, return_dict=False)[0]
    return latent, sound


def relative(value: Tensor, reference: Tensor) -> float:
    return float((value - reference).norm() / reference.norm())


def accelerated(
    video: Any, audio: Any, settings: GalaxyDiTConfig, given: Any = None, **arguments: Any
) -> tuple[tuple[Tensor, Tensor], Report]:
    transformer = TwoStreams()
    with galaxydit.accelerate(transformer, config=settings, scheduler=given or (video, audio)) as acceleration:
        latents = denoise(transformer, video, audio, **arguments)
    return latents, acceleration.report


@pytest.mark.parametrize("speedup", [2.0, 3.0])
@pytest.mark.parametrize("kind", SCHEDULERS)
def test_streams_that_are_linear_in_their_own_noise_levels_are_predicted_exactly(kind: str, speedup: float) -> None:
    video, audio = SCHEDULERS[kind](12.0), SCHEDULERS[kind](3.0)
    plain = denoise(TwoStreams(), SCHEDULERS[kind](12.0), SCHEDULERS[kind](3.0))
    latents, report = accelerated(video, audio, config(speedup))
    assert report.compute_fraction < 1.3 / speedup
    assert not report.notes
    for latent, reference in zip(latents, plain, strict=True):
        assert relative(latent, reference) < 1e-5


def test_a_second_pair_of_schedulers_keeps_its_noise_levels_too() -> None:
    transformer = TwoStreams()
    given = SCHEDULERS["Euler"](5.0), SCHEDULERS["Euler"](5.0)
    video, audio = SCHEDULERS["Euler"](12.0), SCHEDULERS["Euler"](3.0)
    plain = denoise(TwoStreams(), SCHEDULERS["Euler"](12.0), SCHEDULERS["Euler"](3.0))
    with galaxydit.accelerate(
        transformer, config=config(2.0), scheduler=given, schedulers=[(video, audio)]
    ) as acceleration:
        latents = denoise(transformer, video, audio)
    assert acceleration.report.reused_steps > 5
    for latent, reference in zip(latents, plain, strict=True):
        assert relative(latent, reference) < 1e-5


def test_a_copy_that_is_made_in_the_call_steps_the_sound() -> None:
    """The copy is given another shift, as by a pipeline whose sound has its own."""

    def call(transformer: nn.Module, scheduler: Any) -> tuple[Tensor, Tensor]:
        of_sound = copy.deepcopy(scheduler)
        of_sound.set_shift(3.0)
        return denoise(transformer, scheduler, of_sound)

    transformer, scheduler = TwoStreams(), SCHEDULERS["Euler"](12.0)
    plain = call(TwoStreams(), scheduler)
    with galaxydit.accelerate(transformer, config=config(2.0), scheduler=scheduler) as acceleration:
        latents = call(transformer, scheduler)
    assert acceleration.report.reused_steps > 5
    for latent, reference in zip(latents, plain, strict=True):
        assert relative(latent, reference) < 1e-5


def test_schedulers_in_the_wrong_order_are_noticed_and_the_loop_is_computed_in_full() -> None:
    video, audio = SCHEDULERS["Euler"](12.0), SCHEDULERS["Euler"](3.0)
    with pytest.warns(FullComputeWarning, match="larger than the output that it is paired with"):
        _, report = accelerated(video, audio, config(2.0), given=(audio, video))
    assert report.reused_steps == 0


def test_schedulers_with_different_numbers_of_steps_are_computed_in_full() -> None:
    class Longer(FlowMatchEulerDiscreteScheduler):
        def set_timesteps(self, steps: int, *args: Any, **kwargs: Any) -> None:
            super().set_timesteps(steps + 1, *args, **kwargs)

    video, audio, transformer = SCHEDULERS["Euler"](12.0), Longer(shift=3.0), TwoStreams()
    plain = denoise(TwoStreams(), video, audio)
    with (
        galaxydit.accelerate(transformer, config=config(2.0), scheduler=(video, audio)) as acceleration,
        pytest.warns(FullComputeWarning, match="different numbers of steps"),
    ):
        latents = denoise(transformer, video, audio)
    assert all(map(torch.equal, latents, plain))
    report = acceleration.report
    assert (report.compute_fraction, report.steps, report.steps_run) == (1.0, STEPS, STEPS)
    assert "different numbers of steps" in report.notes[0]


def test_it_is_not_guessed_which_of_three_schedulers_steps_the_sound() -> None:
    video, audio, transformer = SCHEDULERS["Euler"](12.0), SCHEDULERS["Euler"](3.0), TwoStreams()
    third = SCHEDULERS["Euler"](5.0)
    third.set_timesteps(STEPS)
    plain = denoise(TwoStreams(), video, audio)
    with (
        galaxydit.accelerate(transformer, config=config(2.0), scheduler=video, schedulers=[audio, third]),
        pytest.warns(FullComputeWarning, match="not told which scheduler steps which output"),
    ):
        latents = denoise(transformer, video, audio)
    assert all(map(torch.equal, latents, plain))


@pytest.mark.parametrize("named", ["none", "unused", "begun"])
def test_an_output_that_no_observed_scheduler_steps_is_not_given_the_levels_of_another(named: str) -> None:
    video, audio, other = (SCHEDULERS["Euler"](shift) for shift in (12.0, 3.0, 5.0))
    if named == "begun":
        other.set_timesteps(STEPS)
    plain = denoise(TwoStreams(), SCHEDULERS["Euler"](12.0), SCHEDULERS["Euler"](3.0))
    given = video if named == "none" else (video, other)
    with pytest.warns(FullComputeWarning, match="no observed scheduler stepped one of the transformer's outputs"):
        latents, report = accelerated(video, audio, config(2.0), given=given)
    assert all(map(torch.equal, latents, plain))
    assert report.reused_steps == 0


def test_a_replaced_latent_of_the_sound_alone_is_not_predicted_from_the_one_before() -> None:
    plain = [SCHEDULERS["Euler"](12.0), SCHEDULERS["Euler"](3.0)]
    settings = config(2.0)
    _, report = accelerated(*plain, settings)
    reused = [call.step for call in report.calls if call.reused]
    with pytest.warns(FullComputeWarning, match="does not continue"):
        _, replaced = accelerated(*plain, settings, replaced=reused[3])
    assert not any(call.reused for call in replaced.calls if call.step == reused[3])


@pytest.mark.parametrize(
    ("count", "text"), [(3, "one scheduler for each output of Two streams"), (0, "different objects")]
)
def test_a_wrong_number_of_schedulers_is_refused(count: int, text: str) -> None:
    schedulers = tuple(SCHEDULERS["Euler"](3.0) for _ in range(count))
    with pytest.raises(GalaxyDiTError, match=text):
        galaxydit.accelerate(TwoStreams(), scheduler=schedulers)


def test_one_scheduler_for_two_outputs_is_refused_as_a_pair() -> None:
    scheduler = SCHEDULERS["Euler"](3.0)
    with pytest.raises(GalaxyDiTError, match=r"counts its own steps.*copy\.deepcopy"):
        galaxydit.accelerate(TwoStreams(), scheduler=(scheduler, scheduler))


def test_a_pair_is_refused_where_the_transformer_has_one_output(tiny_wan: Any) -> None:
    pair = SCHEDULERS["Euler"](3.0), SCHEDULERS["Euler"](3.0)
    with pytest.raises(GalaxyDiTError, match="Wan has one output"):
        galaxydit.accelerate(tiny_wan.pipe.transformer, scheduler=pair)
