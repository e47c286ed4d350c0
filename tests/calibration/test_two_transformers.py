"""Wan2.2 A14B: one transformer for high noise, another for low noise, one trajectory and one budget."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from diffusers import WanPipeline

import galaxydit
from galaxydit.calibration.budget import Budget
from galaxydit.calibration.calibration import Calibration, calibrate
from galaxydit.calibration.generation_observer import record_sample
from galaxydit.calibration.perturbation import INTERVALS, perturbed_schedule
from galaxydit.errors import GalaxyDiTError, ProfileWarning
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.policies.policy import Reason
from tests.calibration.conftest import PROMPTS
from tests.conftest import build_tiny_transformer

PROMPT = "a cyan triangle grows over a dotted background"
STEPS = 12
SWITCH = 6  # of 12 steps at shift 8 and boundary 0.9
SETTINGS = GenerationSettings(32, 32, 5, steps=STEPS, guidance_scale=3.0, guidance_scale_2=2.0)


@pytest.fixture(scope="module")
def build_two_stage(tiny_wan_builder: Callable[[], WanPipeline]) -> Callable[[], WanPipeline]:
    """Builds the pipeline of `two_stage`, with the same weights at each call."""

    def build() -> WanPipeline:
        parts = tiny_wan_builder().components
        second = {"transformer_2": build_tiny_transformer(3), "boundary_ratio": 0.9}
        pipe = WanPipeline(**(parts | second))
        pipe.set_progress_bar_config(disable=True)
        return pipe

    return build


@pytest.fixture
def two_stage(build_two_stage: Callable[[], WanPipeline]) -> WanPipeline:
    return build_two_stage()


@pytest.fixture(scope="module")
def calibrated(build_two_stage: Callable[[], WanPipeline], tmp_path_factory: pytest.TempPathFactory) -> Calibration:
    """A calibration of the same weights, made once."""
    return calibrate(
        build_two_stage(),
        PROMPTS,
        resume_dir=tmp_path_factory.mktemp("two") / "parts",
        budget=Budget((2, 2), True, 8, 1),
        settings=SETTINGS,
        speedups=(1.5, 2.0),
        name="two",
    )


def test_a_recording_is_of_the_predictions_that_the_scheduler_receives_from_both(
    two_stage: WanPipeline, received_of: Callable
) -> None:
    received = received_of(two_stage)
    recording, *_ = record_sample(two_stage, PROMPT, SETTINGS, 0)
    assert recording.switch == SWITCH
    assert recording.sigmas[SWITCH] < 0.9 <= recording.sigmas[SWITCH - 1]
    differences = torch.stack(received).diff(dim=0)
    products = (differences @ differences.T / differences.shape[1]).numpy()
    np.testing.assert_allclose(recording.products, products, rtol=1e-3, atol=1e-7)


def test_no_proxy_and_no_prediction_looks_back_to_the_other_transformer(two_stage: WanPipeline) -> None:
    recording, *_ = record_sample(two_stage, PROMPT, SETTINGS, 0)
    assert all(distances[SWITCH] == 0 for distances in recording.distances.values())
    for lag in (1, 3):
        unknown = {*range(lag), *range(SWITCH, SWITCH + lag)}
        for values in (recording.guided_change(lag), recording.accumulated("block_residual", lag)):
            assert set(np.flatnonzero(np.isnan(values))) == unknown


@pytest.mark.parametrize("switch", range(1, STEPS - 1))
@pytest.mark.parametrize("interval", INTERVALS)
def test_a_perturbation_computes_the_first_step_of_the_second_transformer(
    interval: tuple[float, float], switch: int
) -> None:
    schedule = perturbed_schedule(STEPS, interval, switch)
    assert {0, 1, switch, STEPS - 1} <= set(schedule)
    assert len(schedule) == len(perturbed_schedule(STEPS, interval))


def test_a_profile_of_both_is_saved_found_and_met(
    calibrated: Calibration, two_stage: WanPipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = calibrated.profile
    sigmas = profile.conditions.sigmas
    assert all(sigmas[SWITCH] in target.sigmas for target in profile.recipe.targets)
    assert profile.conditions.boundary == 0.9
    assert profile.conditions.guidance_scale_2 == 2.0
    assert profile.second_model is not None
    assert profile.second_model.weights != profile.model.weights
    profile.save(tmp_path / "two.json")
    found = galaxydit.load_profile(tmp_path / "two.json")
    assert found == profile
    monkeypatch.setattr("galaxydit.profiles.profile_registry.shipped_profiles", lambda: (found,))
    plain = generate(two_stage, PROMPT, SETTINGS, 77)
    for speedup in (1.5, 2.0):
        with galaxydit.accelerate(two_stage, speedup=speedup) as acceleration:
            generate(two_stage, PROMPT, SETTINGS, 77)
        report = acceleration.report
        assert acceleration.profile is found
        assert report.notes == ()
        assert report.compute_fraction == pytest.approx(1 / speedup, rel=0.05)
        computed = sorted({call.step for call in report.calls if not call.reused})
        assert tuple(sigmas[step] for step in computed) == profile.target_for(speedup).sigmas
    with pytest.warns(galaxydit.NoEffectWarning), galaxydit.accelerate(two_stage, threshold=0):
        assert torch.equal(generate(two_stage, PROMPT, SETTINGS, 77).latents, plain.latents)
    assert torch.equal(generate(two_stage, PROMPT, SETTINGS, 77).latents, plain.latents)
    for transformer in (two_stage.transformer, two_stage.transformer_2):
        registries = [getattr(module, "_diffusers_hook", None) for module in transformer.modules()]
        assert not [name for registry in registries if registry is not None for name in registry.hooks]
    with pytest.raises(GalaxyDiTError, match="for a pipeline with 2 denoising transformer"):
        galaxydit.accelerate(two_stage.transformer, profile=profile)
    two_stage.transformer, two_stage.transformer_2 = two_stage.transformer_2, two_stage.transformer
    with pytest.raises(GalaxyDiTError, match="its weights are those of another checkpoint"):
        galaxydit.accelerate(two_stage, profile=profile)


@pytest.mark.parametrize(
    ("change", "remark"),
    [
        ({"steps": 20}, "20 steps, and the profile was measured with 12"),
        ({"steps": 40}, "40 steps, and the profile was measured with 12"),
        ({"guidance_scale_2": 4.0}, "guidance_scale_2=4, and the profile was measured at 2"),
        ({"boundary": 0.6}, "takes over at a noise level of 0.6, and the profile was measured with 0.9"),
    ],
)
def test_under_other_conditions_the_speedup_is_met_with_a_remark(
    calibrated: Calibration, two_stage: WanPipeline, change: dict, remark: str
) -> None:
    settings = replace(SETTINGS, **{name: value for name, value in change.items() if name != "boundary"})
    two_stage.register_to_config(boundary_ratio=change.get("boundary", 0.9))
    with (
        galaxydit.accelerate(two_stage, speedup=2.0, profile=calibrated.profile) as acceleration,
        pytest.warns(ProfileWarning, match=remark),
    ):
        generate(two_stage, PROMPT, settings, 0)
    calls = acceleration.report.calls
    first = next(call for call in calls if call.transformer == "transformer_2")
    assert (first.reused, first.reason) == (False, Reason.SCHEDULE)
    assert acceleration.report.compute_fraction == pytest.approx(0.5, rel=0.05)
    with (
        galaxydit.accelerate(two_stage, speedup=2.0, policy="proxy", profile=calibrated.profile) as acceleration,
        pytest.warns(ProfileWarning, match=remark),
    ):
        generate(two_stage, PROMPT, settings, 0)
    leeway = 1 / settings.steps  # the first transformer may end one full step behind the schedule, or ahead of it
    assert acceleration.report.compute_fraction == pytest.approx(0.5, abs=1.01 * leeway)
