"""Each ablation differs from the shipped default in what it is named after, and in nothing else."""

from dataclasses import asdict

import pytest

import galaxydit
from galaxydit.eval.methods import ablations
from galaxydit.eval.methods.ablations import shipped
from galaxydit.eval.methods.method_registry import load_method, names_of
from galaxydit.pipelines.loading import load_pipeline

METHODS = [load_method(name) for name in names_of(["ablations"]) if name != "exact predictions"]


@pytest.fixture(scope="module")
def wan_tiny():
    return load_pipeline("wan-tiny")


@pytest.mark.parametrize("speedup", [1.5, 2.0, 2.25, 3.0])
def test_with_nothing_changed_it_is_the_shipped_default(wan_tiny, speedup):
    with galaxydit.accelerate(wan_tiny, speedup=speedup) as acceleration:
        assert shipped(wan_tiny, speedup=speedup) == acceleration.config


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("last full step repeated", {"order": 0}),
        ("without correction", {"correction": False}),
        ("residual reused", {"reuse": "residual"}),
        ("first fifth computed", {"warmup": 0.2}),
    ],
)
def test_each_changes_what_it_is_named_after(wan_tiny, monkeypatch, name, changes):
    monkeypatch.setattr(ablations, "accelerated", lambda pipe, config: asdict(config))
    method = load_method(name)
    usual, given = asdict(shipped(wan_tiny, speedup=2.0)), method.attach(wan_tiny, {"speedup": 2.0}, None)
    assert {key: value for key, value in given.items() if value != usual[key]} == changes


def test_an_error_limit_takes_the_place_of_the_budget(wan_tiny):
    method = load_method("expected error instead of a budget")
    with galaxydit.accelerate(wan_tiny, max_error=0.1) as acceleration:
        assert shipped(wan_tiny, **method.settings(50)[0] | {"max_error": 0.1}) == acceleration.config


def test_an_ablation_without_a_profile_is_refused(tiny_wan_pipeline):
    method = load_method("last full step repeated")
    with pytest.raises(ValueError, match="profile=None is not allowed: expected the profile of this model"):
        method.attach(tiny_wan_pipeline, method.settings(50)[0], None).__enter__()


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_candidate_settings_are_accepted(wan_tiny, method):
    assert "," not in method.name
    for setting in method.settings(50):
        with method.attach(wan_tiny, setting, None):
            assert wan_tiny.transformer._diffusers_hook.hooks


def test_ablations_are_chosen_by_their_own_word_alone():
    every = {*(method.name for method in METHODS), "exact predictions"}
    assert set(names_of(["ablations"])) == every
    assert not every & set(names_of(["all", "published"]))
