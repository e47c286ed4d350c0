"""Fewer plain steps at chosen noise levels."""

import logging
from dataclasses import replace

import numpy as np
import pytest
import torch
from diffusers import FlowMatchEulerDiscreteScheduler, UniPCMultistepScheduler

import galaxydit
from galaxydit import GalaxyDiTError
from galaxydit.eval.methods.fewer_steps import at_noise_levels
from galaxydit.eval.methods.fewer_steps import attach_optimised as attach
from galaxydit.eval.methods.method_registry import load_method
from galaxydit.pipelines.generate import generate

PROMPT = "a red ball"
SCHEDULED = load_method("plain at scheduled levels")


def test_a_ratio_of_shifts_gives_the_levels_of_that_flow_shift(tiny_wan_pipeline):
    scheduler = UniPCMultistepScheduler.from_config(tiny_wan_pipeline.scheduler.config, flow_shift=7.5)
    scheduler.set_timesteps(20)
    own = tiny_wan_pipeline.scheduler.config.flow_shift
    with at_noise_levels(tiny_wan_pipeline, 20, range(20), 7.5 / own):
        tiny_wan_pipeline.scheduler.set_timesteps(20)
        np.testing.assert_allclose(tiny_wan_pipeline.scheduler.sigmas, scheduler.sigmas, atol=2e-3)


def test_a_plan_of_all_steps_is_the_plain_video_and_half_a_plan_is_not(tiny_wan_pipeline, tiny_settings):
    settings = replace(tiny_settings, steps=8)
    plain = generate(tiny_wan_pipeline, PROMPT, settings, seed=0).frames
    for steps, is_equal in ((range(8), True), (range(0, 8, 2), False)):
        count = len(steps)
        setting = {"steps": count, "levels": "planned", "of": 8}
        with attach(tiny_wan_pipeline, setting, {str(count): tuple(steps)}):
            ours = generate(tiny_wan_pipeline, PROMPT, replace(settings, steps=count), seed=0).frames
        assert np.allclose(ours, plain, atol=2e-3) == is_equal


@pytest.mark.parametrize(
    ("attached", "setting"),
    [(attach, {"steps": 4, "levels": 2.0, "of": 8}), (SCHEDULED.attach, {"speedup": 2.0, "of": 12})],
)
def test_a_scheduler_other_than_unipc_is_refused(tiny_wan_pipeline, attached, setting):
    tiny_wan_pipeline.scheduler = FlowMatchEulerDiscreteScheduler()
    with (
        pytest.raises(GalaxyDiTError, match="scheduler='FlowMatchEulerDiscreteScheduler' is not allowed"),
        attached(tiny_wan_pipeline, setting, None),
    ):
        pass


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"levels": "foo"}, "levels"),
        ({"levels": 0}, "levels"),
        ({"levels": float("nan")}, "levels"),
        ({"steps": 5}, "steps"),
        ({"of": 6}, "of"),
        ({"of": "8"}, "of"),
    ],
)
def test_settings_that_no_plan_serves_are_refused(tiny_wan_pipeline, change, field):
    setting = {"steps": 4, "levels": "planned", "of": 8} | change
    with (
        pytest.raises(GalaxyDiTError, match=f"{field}=.* is not allowed"),
        attach(tiny_wan_pipeline, setting, {"4": (0, 2, 4, 6)}),
    ):
        pass


@pytest.mark.parametrize("levels", ["planned", 2.0])
def test_the_levels_are_chosen_from_those_of_the_flow_shift_of_the_settings(tiny_wan_pipeline, tiny_settings, levels):
    own = tiny_wan_pipeline.scheduler
    setting, plan = {"steps": 4, "levels": levels, "of": 8}, {"4": (0, 2, 4, 6)}
    few = replace(tiny_settings, steps=4)
    with attach(tiny_wan_pipeline, setting, plan):
        by_settings = generate(tiny_wan_pipeline, PROMPT, replace(few, flow_shift=7.5), seed=0).frames
        elsewhere = generate(tiny_wan_pipeline, PROMPT, few, seed=0).frames
    tiny_wan_pipeline.scheduler = UniPCMultistepScheduler.from_config(own.config, flow_shift=7.5)
    with attach(tiny_wan_pipeline, setting, plan):
        by_scheduler = generate(tiny_wan_pipeline, PROMPT, few, seed=0).frames
    np.testing.assert_array_equal(by_settings, by_scheduler)
    assert not np.allclose(by_settings, elsewhere, atol=1e-3)


def test_diffusers_knows_every_entry_of_the_schedulers_configuration(
    tiny_wan_pipeline, tiny_settings, caplog, monkeypatch
):
    monkeypatch.setattr(logging.getLogger("diffusers"), "propagate", True)
    settings = replace(tiny_settings, steps=4, flow_shift=7.5)
    with (
        caplog.at_level(logging.WARNING, "diffusers"),
        attach(tiny_wan_pipeline, {"steps": 4, "levels": 2.0, "of": 8}, None),
    ):
        generate(tiny_wan_pipeline, PROMPT, settings, seed=0)
    assert not caplog.messages


def test_no_level_is_skipped_where_two_round_to_the_same_timestep(tiny_wan_pipeline):
    tiny_wan_pipeline.scheduler = UniPCMultistepScheduler.from_config(tiny_wan_pipeline.scheduler.config, flow_shift=16)
    with attach(tiny_wan_pipeline, {"steps": 25, "levels": 4.0, "of": 50}, None):
        scheduler, latent = tiny_wan_pipeline.scheduler, torch.zeros(1, 1)
        scheduler.set_timesteps(25)
        timesteps = scheduler.timesteps
        assert timesteps[0] == timesteps[1]
        for step, timestep in enumerate(timesteps):
            latent = scheduler.step(torch.ones(1, 1), timestep, latent).prev_sample
            assert scheduler.step_index == step + 1
    assert latent.item() == pytest.approx(-scheduler.sigmas[0].item(), abs=1e-4)


@pytest.mark.filterwarnings("ignore::galaxydit.ProfileWarning")
@pytest.mark.parametrize("flow_shift", [None, 2.5])
@pytest.mark.parametrize("speedup", [1.5, 2.0, 3.0])
def test_the_levels_are_those_of_the_plugins_full_steps(tiny_wan_pipeline, tiny_settings, speedup, flow_shift):
    settings = replace(tiny_settings, steps=12, flow_shift=flow_shift)
    with galaxydit.accelerate(tiny_wan_pipeline, speedup=speedup, policy="schedule") as acceleration:
        generate(tiny_wan_pipeline, PROMPT, settings, seed=0, decode=False)
    computed = sorted({call.sigma for call in acceleration.report.calls if not call.reused}, reverse=True)
    levels, setting = [], {"speedup": speedup, "of": 12}

    def note_levels(done: int, total: int) -> None:
        levels.append(tiny_wan_pipeline.scheduler.sigmas[:-1])

    few = SCHEDULED.generation(settings, setting)
    with SCHEDULED.attach(tiny_wan_pipeline, setting, None):
        generate(tiny_wan_pipeline, PROMPT, few, seed=0, decode=False, on_step=note_levels)
    np.testing.assert_allclose(levels[0], computed, atol=1e-6)
    if flow_shift is None:
        np.testing.assert_allclose(galaxydit.noise_levels(tiny_wan_pipeline, speedup, 12).levels, computed, atol=1e-6)
    assert len(levels) == few.steps == len(computed) < 12
