"""Each ablation differs from the shipped default in what it is named after, and in nothing else."""

import json
from dataclasses import asdict, replace
from typing import Any

import pytest

import galaxydit
from galaxydit.calibration.recording import Recording
from galaxydit.eval.compare.methods.ablations import (
    CHANGES,
    METHODS,
    as_for_euler,
    one_later,
    other_proxy,
    shipped,
    without_propagation,
)
from galaxydit.eval.compare.registry import choose_methods, every_method
from galaxydit.pipelines import load_pipeline
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.settings import recommended_settings
from galaxydit.profiles.registry import load_profile
from galaxydit.profiles.schema import ErrorPropagation

PROFILE = load_profile("wan-tiny")


@pytest.fixture(scope="module")
def wan_tiny():
    return load_pipeline("wan-tiny")


@pytest.mark.parametrize("speedup", [1.5, 2.0, 2.25, 3.0])
def test_with_nothing_changed_it_is_the_shipped_default(wan_tiny, speedup):
    with galaxydit.accelerate(wan_tiny, speedup=speedup) as acceleration:
        assert shipped(PROFILE, speedup) == acceleration.config


def changed(name: str) -> dict[str, Any]:
    """The fields of the configuration, and of its policy, in which an ablation differs where coefficients are used."""
    given = asdict(CHANGES[name](PROFILE, {"speedup": 1.5})["config"])
    usual = asdict(shipped(PROFILE, 1.5))
    flat = [one | {f"policy.{key}": value for key, value in one.pop("policy").items()} for one in (given, usual)]
    return {key: value for key, value in flat[0].items() if value != flat[1][key]}


def test_each_changes_what_it_is_named_after():
    assert changed("predictions not weighed") == {"policy.coefficients": ()}
    assert changed("last full step repeated") == {"policy.coefficients": (), "order": 0}
    assert changed("residual reused") == {"reuse": "residual"}
    assert changed("first fifth computed") == {"warmup": 0.2}


def test_what_is_planned_anew_differs_in_what_it_is_named_after():
    sigmas, empty = (1.0, 0.75, 0.25), {}
    recording = Recording("", 0, sigmas, (0.5, 0.2, 0.3), 6.0, (), empty, (1.0,) * 3, ((1.0, 0.0),) * 2)
    assert as_for_euler(PROFILE, recording) == (PROFILE, replace(recording, scheduler_response=(0.25, 0.5, 0.25)))
    profile, same = without_propagation(PROFILE, recording)
    assert same == recording
    assert profile == replace(PROFILE, evidence=replace(PROFILE.evidence, propagation=ErrorPropagation()))
    assert PROFILE.evidence.propagation.sensitivity(0.2) != 1.0


def test_the_other_proxy_finds_no_profile(wan_tiny):
    with galaxydit.accelerate(wan_tiny, speedup=2.0, proxy=other_proxy(PROFILE)) as acceleration:
        assert acceleration.config.policy.error_map is None


def test_an_ablation_without_a_profile_is_refused(tiny_wan_pipeline):
    method = METHODS[0]
    with pytest.raises(ValueError, match="profile=None is not allowed: expected the profile of this model"):
        method.attach(tiny_wan_pipeline, method.settings(50)[0], None).__enter__()


def test_branches_in_turns_differ_where_full_steps_are_apart():
    assert one_later((0, 1, 2, 3, 5, 7, 10, 12, 13)) == (0, 1, 2, 3, 6, 8, 11, 12, 13)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_candidate_settings_are_accepted(wan_tiny, method):
    target = asdict(PROFILE.target_for(2.0))
    calibration = json.loads(json.dumps({str(setting.get("speedup")): target for setting in method.settings(50)}))
    assert "," not in method.name
    for setting in method.settings(50):
        with method.attach(wan_tiny, setting, calibration):
            assert wan_tiny.transformer._diffusers_hook.hooks


def test_ablations_are_chosen_by_their_own_word_alone():
    known = every_method((2.0,))
    assert choose_methods(["ablations"], known) == METHODS
    assert not set(METHODS) & set(choose_methods(["all", "published"], known))


def test_plans_made_anew_have_their_number_of_full_steps(wan_tiny):
    settings = replace(recommended_settings(wan_tiny), steps=10)
    method = next(method for method in METHODS if method.name == "planned on few prompts")
    plans = method.calibrate(wan_tiny, ["a red ball", "a blue ball"], settings, 0)
    assert len(plans["2.0"]["sigmas"]) == len(plans["2.0"]["coefficients"]) == 5
    with method.attach(wan_tiny, {"speedup": 2.0}, json.loads(json.dumps(plans))) as attached:
        generate(wan_tiny, "a", settings, 0, decode=False)
        assert attached.bytes_held() > 0
