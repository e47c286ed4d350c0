import math
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import accelerate
import pytest
import torch
from diffusers import (
    AdaptiveProjectedGuidance,
    ClassifierFreeGuidance,
    UniPCMultistepScheduler,
    WanPipeline,
)
from profile_parts import PROMPT, SETTINGS, profile_for, target_of

import galaxydit
from galaxydit.config import GalaxyDiTConfig
from galaxydit.errors import GalaxyDiTError, ProfileWarning
from galaxydit.pipelines.generate import generate
from galaxydit.policies.proxy_threshold import ProxyThreshold
from galaxydit.policies.schedule import Schedule
from galaxydit.policies.threshold import Threshold, threshold_for
from galaxydit.profiles.changed_conditions import notes_and_warnings
from galaxydit.profiles.evidence import RankedProxy
from galaxydit.profiles.fingerprint import model_mismatch, model_of, project_weights
from galaxydit.profiles.recipe import Target
from galaxydit.runtime.source import Source

RANKED = RankedProxy("block_residual", 0.05, 0.9, 0.8, 0.95, 0.3, 0.1, 0.5, 0.7)


@pytest.mark.parametrize("speedup", [1.5, 2.0, 2.5])
def test_a_speedup_is_met_and_nothing_is_remarked_under_the_calibrated_settings(
    tiny_wan_pipeline: WanPipeline, speedup: float, recwarn: pytest.WarningsRecorder
) -> None:
    profile = profile_for(tiny_wan_pipeline)
    profile = replace(profile, recipe=replace(profile.recipe, targets=(target_of(speedup, profile.conditions.sigmas),)))
    with galaxydit.accelerate(tiny_wan_pipeline, speedup=speedup, profile=profile) as acceleration:
        generate(tiny_wan_pipeline, PROMPT, SETTINGS, 0)
    assert acceleration.report.compute_fraction == pytest.approx(1 / speedup, rel=0.05)
    assert acceleration.report.notes == ()
    assert not [warning for warning in recwarn if warning.category is ProfileWarning]
    reused = [call for call in acceleration.report.calls if call.reused]
    assert all(call.expected_error is not None for call in reused)


@pytest.mark.parametrize(
    ("change", "remark"),
    [
        ({"steps": 30}, "30 steps, and the profile was measured with 20: its planned steps keep"),
        ({"flow_shift": 3.0}, "another flow shift"),
        ({"guidance_scale": 5.0}, "guidance_scale=5, and the profile was measured at 3"),
    ],
)
def test_other_settings_are_adapted_to_with_a_warning_and_the_budget_holds(
    tiny_wan_pipeline: WanPipeline, change: dict, remark: str
) -> None:
    profile = profile_for(tiny_wan_pipeline)
    with galaxydit.accelerate(tiny_wan_pipeline, speedup=2.0, profile=profile) as acceleration:
        with pytest.warns(ProfileWarning, match=remark):
            generate(tiny_wan_pipeline, PROMPT, replace(SETTINGS, **change), 0)
        assert any(re.search(remark, note) for note in acceleration.report.notes)
        assert acceleration.report.compute_fraction == pytest.approx(0.5, rel=0.05)


def test_another_size_is_a_note_because_schedules_hardly_depend_on_it(
    tiny_wan_pipeline: WanPipeline, recwarn: pytest.WarningsRecorder
) -> None:
    profile = profile_for(tiny_wan_pipeline)
    with galaxydit.accelerate(tiny_wan_pipeline, speedup=2.0, profile=profile) as acceleration:
        generate(tiny_wan_pipeline, PROMPT, replace(SETTINGS, num_frames=9), 0)
    assert "latent has shape [16, 3, 4, 4] without the batch, and the profile is for" in str(acceleration.report.notes)
    assert not [warning for warning in recwarn if warning.category is ProfileWarning]


@pytest.mark.parametrize(
    ("guider", "remark"),
    [
        (ClassifierFreeGuidance(3.0), None),
        (ClassifierFreeGuidance(5.0), "guidance_scale=5, and the profile was measured at 3"),
        (ClassifierFreeGuidance(3.0, enabled=False), "guidance_scale=1, and the profile was measured at 3"),
        (ClassifierFreeGuidance(3.0, start=0.2), "guidance comes from ClassifierFreeGuidance, and"),
        (AdaptiveProjectedGuidance(3.0), "guidance comes from AdaptiveProjectedGuidance, and"),
    ],
)
def test_the_guider_of_a_modular_pipeline_is_compared_with_the_profile(
    tiny_wan_pipeline: WanPipeline, guider: Any, remark: str | None
) -> None:
    profile, tiny = profile_for(tiny_wan_pipeline), tiny_wan_pipeline
    pipe = SimpleNamespace(guider=guider, scheduler=tiny.scheduler, transformer=tiny.transformer)
    source, sigmas = Source(pipe, tiny.transformer), profile.conditions.sigmas
    notes, warned = notes_and_warnings(profile, False, 20, sigmas, source, (16, 2, 4, 4))
    assert notes == []
    assert warned == [] if remark is None else remark in warned[0]


def test_with_fewer_steps_than_a_profile_serves_the_default_computes_all_and_says_so(
    tiny_wan_pipeline: WanPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("galaxydit.profiles.changed_conditions.SERVED_SHARE", 0.65)
    profile = profile_for(tiny_wan_pipeline)
    sigmas = profile.conditions.sigmas[::2]
    profile = replace(profile, recipe=replace(profile.recipe, targets=(Target(2.0, 0.1, 6, sigmas),)))
    cases = ((None, 12, 1.0, "auto"), (2.0, 12, 0.5, "auto"), (None, 14, 0.5, "auto"), (None, 12, 1.0, "proxy"))
    for speedup, steps, fraction, policy in cases:
        with (
            galaxydit.accelerate(tiny_wan_pipeline, speedup=speedup, profile=profile, policy=policy) as acceleration,
            pytest.warns(ProfileWarning, match="was measured with 20"),
        ):
            generate(tiny_wan_pipeline, PROMPT, replace(SETTINGS, steps=steps), 0)
        assert acceleration.report.compute_fraction == pytest.approx(fraction)
        note = " ".join(acceleration.report.notes)
        assert ("12 steps are too few for the profile" in note) == (steps == 12)
        assert ("all are computed by default" in note) == (fraction == 1.0)


def test_another_scheduler_is_remarked(tiny_wan_pipeline: WanPipeline) -> None:
    profile = profile_for(tiny_wan_pipeline)
    profile = replace(profile, conditions=replace(profile.conditions, scheduler="FlowMatchEulerDiscreteScheduler"))
    with (
        galaxydit.accelerate(tiny_wan_pipeline, profile=profile),
        pytest.warns(ProfileWarning, match="scheduler is UniPCMultistepScheduler"),
    ):
        generate(tiny_wan_pipeline, PROMPT, SETTINGS, 0)
    assert isinstance(tiny_wan_pipeline.scheduler, UniPCMultistepScheduler)


def test_the_profile_of_another_model_is_refused_with_a_cure(
    tiny_wan_pipeline: WanPipeline, tiny_transformer: Callable
) -> None:
    profile = profile_for(tiny_wan_pipeline)
    with pytest.raises(
        GalaxyDiTError, match=r"it is for num_layers=3, and this model has 4; run `galaxydit calibrate`"
    ):
        galaxydit.accelerate(tiny_transformer(4), profile=profile)
    torch.manual_seed(1)
    with pytest.raises(GalaxyDiTError, match="weights are those of another checkpoint"):
        galaxydit.accelerate(tiny_transformer(3), profile=profile)
    styled = replace(profile, model=replace(profile.model, adapters=("style",)))
    with pytest.raises(GalaxyDiTError, match=r"it is for adapters \['style'\], and \[\] are active"):
        galaxydit.accelerate(tiny_wan_pipeline, profile=styled)


def test_weights_are_recognised_in_half_precision_and_told_from_a_fine_tune(tiny_transformer: Callable) -> None:
    torch.manual_seed(0)
    transformer = tiny_transformer(3)
    model = model_of(transformer)
    assert len(project_weights(transformer)) == 8
    assert model_mismatch(model, transformer.to(torch.bfloat16)) is None
    transformer = transformer.float()
    with torch.no_grad():
        for parameter in transformer.parameters():
            parameter += 0.05 * parameter.std() * torch.randn_like(parameter) if parameter.ndim > 1 else 0
    assert model_mismatch(model, transformer).part == "weights"


def test_weights_are_recognised_where_each_layer_is_offloaded_for_itself(tiny_transformer: Callable) -> None:
    transformer = tiny_transformer(3)
    expected = project_weights(transformer)
    accelerate.cpu_offload(transformer, torch.device("cpu"))
    assert all(parameter.is_meta for parameter in transformer.parameters())
    assert project_weights(transformer) == expected


def test_a_speedup_beyond_what_the_profiles_steps_allow_is_refused(tiny_wan_pipeline: WanPipeline) -> None:
    profile = profile_for(tiny_wan_pipeline)
    with pytest.raises(GalaxyDiTError, match=r"expected at most 10, because no plan computes fewer than 2"):
        galaxydit.accelerate(tiny_wan_pipeline, speedup=1e9, profile=profile)


def test_without_a_profile_the_speedup_is_met_by_a_general_schedule_that_says_so(
    tiny_wan_pipeline: WanPipeline,
) -> None:
    with galaxydit.accelerate(tiny_wan_pipeline, speedup=2.0) as acceleration:
        generate(tiny_wan_pipeline, PROMPT, SETTINGS, 0)
        report = acceleration.report
    assert report.compute_fraction == pytest.approx(0.5, rel=0.05)
    assert any("a general schedule" in note for note in report.notes)
    assert {call.distance for call in report.calls} == {None}


def test_without_a_profile_max_error_stops_reuse(tiny_wan_pipeline: WanPipeline) -> None:
    fractions = []
    for max_error in (1e-6, 0.3, 2.0):
        with galaxydit.accelerate(tiny_wan_pipeline, max_error=max_error) as acceleration:
            generate(tiny_wan_pipeline, PROMPT, SETTINGS, 0)
        expected = [call.expected_error for call in acceleration.report.calls if call.reused]
        assert max(expected, default=0.0) <= max_error
        fractions.append(acceleration.report.compute_fraction)
    assert fractions[0] == 1.0
    assert fractions == sorted(fractions, reverse=True)
    assert fractions[-1] < 0.8


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threshold": 0.1, "speedup": 2.0}, "threshold is given together with speedup"),
        ({"threshold": 0.1, "policy": "proxy"}, "threshold is given together with policy"),
        ({"max_error": 0.1, "policy": "schedule"}, "max_error is given together with policy"),
        ({"policy": "proxi"}, "policy='proxi' is not allowed: expected one of 'auto', 'schedule', 'proxy', 'paper'"),
        ({"config": GalaxyDiTConfig(), "speedup": 2.0}, "config is given together with speedup"),
        ({"warmup": 1.5}, "warmup=1.5 is not allowed"),
        ({"profile": "no-such"}, "profile='no-such' is not allowed: expected a file, or one that is shipped"),
        ({"profile": "wan-tny"}, "or run `galaxydit calibrate`; did you mean 'wan-tiny'"),
        ({"speedup": 0.5}, "speedup=0.5 is not allowed: expected a number at least 1"),
        ({"max_error": -0.1}, "max_error=-0.1 is not allowed: expected a number at least 0"),
    ],
)
def test_options_that_cannot_work_are_refused(tiny_wan_pipeline: WanPipeline, options: dict, message: str) -> None:
    with pytest.raises(GalaxyDiTError, match=message):
        galaxydit.accelerate(tiny_wan_pipeline, **options)


def test_a_threshold_on_the_profiles_proxy_needs_no_plan(tiny_wan_pipeline: WanPipeline) -> None:
    profile = profile_for(tiny_wan_pipeline)
    ranked = replace(profile, evidence=replace(profile.evidence, ranking=(RANKED,)))
    with galaxydit.accelerate(tiny_wan_pipeline, threshold=0.1, profile=ranked) as acceleration:
        pass
    assert acceleration.config == GalaxyDiTConfig(Threshold(0.1), warmup=0.2, max_consecutive=None)


def test_the_papers_recipe_takes_its_threshold_from_the_calibration_or_from_the_user(
    tiny_wan_pipeline: WanPipeline,
) -> None:
    profile = profile_for(tiny_wan_pipeline)
    curve = profile.recipe.cumulative_distance
    with galaxydit.accelerate(tiny_wan_pipeline, policy="paper", speedup=2, profile=profile) as acceleration:
        generate(tiny_wan_pipeline, PROMPT, SETTINGS, 0)
    config = acceleration.config
    assert (config.reuse, config.order, config.correction, config.warmup) == ("residual", 0, False, 0.2)
    assert isinstance(config.policy, Threshold)
    moved = [0.0, *map(curve, profile.conditions.sigmas)]
    distances = [after - before for before, after in pairwise(moved)]
    assert config.policy.threshold == threshold_for(distances, 10, config.limits)
    with galaxydit.accelerate(tiny_wan_pipeline, policy="paper", threshold=0.2) as acceleration:
        pass
    assert acceleration.config.policy == Threshold(0.2)
    with pytest.raises(GalaxyDiTError, match="policy='paper' is not allowed: expected a threshold too"):
        galaxydit.accelerate(tiny_wan_pipeline, policy="paper", speedup=2)


@pytest.mark.parametrize("options", [{"threshold": 1e9}, {"max_error": 1e9}])
def test_without_limits_only_the_papers_warm_up_and_the_last_step_are_computed(
    tiny_wan_pipeline: WanPipeline, options: dict
) -> None:
    with galaxydit.accelerate(tiny_wan_pipeline, profile=profile_for(tiny_wan_pipeline), **options) as acceleration:
        generate(tiny_wan_pipeline, PROMPT, SETTINGS, 0)
    full = {call.step for call in acceleration.report.calls if not call.reused}
    assert full == {*range(math.ceil(0.2 * SETTINGS.steps)), SETTINGS.steps - 1}


def test_the_policy_proxy_takes_the_profiles_proxy_and_threshold(tiny_wan_pipeline: WanPipeline) -> None:
    profile = profile_for(tiny_wan_pipeline)
    targets = tuple(replace(target, threshold=0.7) for target in profile.recipe.targets)
    profile = replace(profile, recipe=replace(profile.recipe, targets=targets))
    with galaxydit.accelerate(tiny_wan_pipeline, speedup=2.0, policy="proxy", profile=profile) as acceleration:
        pass
    assert isinstance(acceleration.config.policy, ProxyThreshold)
    assert acceleration.config.policy.threshold == 0.7
    assert acceleration.config.policy.schedule.cumulative_distance == profile.recipe.cumulative_distance
    assert acceleration.config.proxy == profile.recipe.proxy
    assert acceleration.config.max_consecutive is None


@pytest.mark.parametrize("better", ["schedule", "proxy"])
def test_the_policy_auto_follows_the_verification(tiny_wan_pipeline: WanPipeline, better: str) -> None:
    profile = profile_for(tiny_wan_pipeline)
    targets = tuple(replace(target, threshold=1.0, policy=better) for target in profile.recipe.targets)
    profile = replace(profile, recipe=replace(profile.recipe, targets=targets))
    with galaxydit.accelerate(tiny_wan_pipeline, speedup=2.0, profile=profile) as acceleration:
        pass
    assert isinstance(acceleration.config.policy, ProxyThreshold if better == "proxy" else Schedule)


@pytest.mark.parametrize("speedup", [1.5, 2.0, 3.0])
def test_without_a_profile_the_policy_proxy_learns_its_threshold_and_reaches_the_speedup(
    tiny_wan_pipeline: WanPipeline, speedup: float
) -> None:
    settings = replace(SETTINGS, steps=50)
    with galaxydit.accelerate(tiny_wan_pipeline, speedup=speedup, policy="proxy") as acceleration:
        generate(tiny_wan_pipeline, PROMPT, settings, 0)
    assert any("threshold learned during the generation" in note for note in acceleration.report.notes)
    assert acceleration.config.proxy == "filtered_latent"
    assert acceleration.report.compute_fraction == pytest.approx(1 / speedup, rel=0.1)
    assert any(call.distance for call in acceleration.report.calls)
