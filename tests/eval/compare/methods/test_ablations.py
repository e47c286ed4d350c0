"""Each ablation differs from the shipped default in what it is named after, and in nothing else."""

from dataclasses import asdict
from typing import Any

import pytest

import galaxydit
from galaxydit.eval.compare.every_method import choose_methods
from galaxydit.eval.compare.methods.ablations import (
    CHANGES,
    METHODS,
    one_later,
    shipped,
)
from galaxydit.pipelines import load_pipeline
from galaxydit.profiles.registry import load_profile

PROFILE = load_profile("wan-tiny")


@pytest.fixture(scope="module")
def wan_tiny():
    return load_pipeline("wan-tiny")


@pytest.mark.parametrize("speedup", [1.5, 2.0, 2.25, 3.0])
def test_with_nothing_changed_it_is_the_shipped_default(wan_tiny, speedup):
    with galaxydit.accelerate(wan_tiny, speedup=speedup) as acceleration:
        assert shipped(PROFILE, speedup) == acceleration.config


def changed(name: str) -> dict[str, Any]:
    """The fields of the configuration, and of its policy, in which an ablation differs."""
    given = asdict(CHANGES[name](PROFILE, {"speedup": 2.0})["config"])
    usual = asdict(shipped(PROFILE, 2.0))
    flat = [one | {f"policy.{key}": value for key, value in one.pop("policy").items()} for one in (given, usual)]
    return {key: value for key, value in flat[0].items() if value != flat[1][key]}


def test_each_changes_what_it_is_named_after():
    assert changed("last full step repeated") == {"order": 0}
    assert changed("residual reused") == {"reuse": "residual"}
    assert changed("first fifth computed") == {"warmup": 0.2}


def test_an_ablation_without_a_profile_is_refused(tiny_wan_pipeline):
    method = METHODS[0]
    with pytest.raises(ValueError, match="profile=None is not allowed: expected the profile of this model"):
        method.attach(tiny_wan_pipeline, method.settings(50)[0], None).__enter__()


def test_branches_in_turns_differ_where_full_steps_are_apart():
    assert one_later((0, 1, 2, 3, 5, 7, 10, 12, 13)) == (0, 1, 2, 3, 6, 8, 11, 12, 13)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_candidate_settings_are_accepted(wan_tiny, method):
    assert "," not in method.name
    for setting in method.settings(50):
        with method.attach(wan_tiny, setting, None):
            assert wan_tiny.transformer._diffusers_hook.hooks


def test_ablations_are_chosen_by_their_own_word_alone():
    assert choose_methods(["ablations"]) == METHODS
    assert not set(METHODS) & set(choose_methods(["all", "published"]))
