"""This project's own methods run what a user gets."""

from pathlib import Path

import pytest
import torch

import galaxydit
from galaxydit.eval.compare.every_method import choose_methods, with_profiles
from galaxydit.eval.compare.methods import galaxydit_methods

PROFILES = Path(galaxydit.__file__).parent / "profiles"


def test_without_a_profile_is_what_a_user_of_a_model_without_one_gets(tiny_wan_pipeline, latents):
    (method,) = [one for one in galaxydit_methods.METHODS if one.name == "galaxydit without a profile"]
    plain = latents()
    with method.attach(tiny_wan_pipeline, {"speedup": 2.0}, None):
        found = latents()
    with galaxydit.accelerate(tiny_wan_pipeline, speedup=2.0):
        assert torch.equal(latents(), found)
    assert not torch.equal(plain, found)


def test_methods_that_follow_a_profile_follow_each_given_file(tiny_wan_pipeline):
    wanted = choose_methods(["galaxydit schedule", "plain at scheduled levels", "fewer steps"])
    assert with_profiles(wanted, ()) == wanted
    other = PROFILES / "wan-tiny.json"
    names = [method.name for method in with_profiles(wanted, (other, Path("mine.json")))]
    following = ["galaxydit schedule wan-tiny", "galaxydit schedule mine"]
    levels = ["plain at scheduled levels wan-tiny", "plain at scheduled levels mine"]
    assert sorted(names) == sorted([*following, *levels, "fewer steps"])
    for method in with_profiles(wanted, (other,)):
        setting = method.settings(50)[3]
        if method.name == "fewer steps":
            continue
        with (
            pytest.raises(galaxydit.GalaxyDiTError, match="'wan-tiny' does not belong to this model"),
            method.attach(tiny_wan_pipeline, setting, None),
        ):
            pass
