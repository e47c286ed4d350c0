"""This project's own methods run what a user gets."""

from pathlib import Path

import pytest
import torch

import galaxydit
from galaxydit.eval.compare.contender import contenders_of
from galaxydit.eval.methods.method_registry import load_method

PROFILES = Path(galaxydit.__file__).parent / "profiles"


def test_without_a_profile_is_what_a_user_of_a_model_without_one_gets(tiny_wan_pipeline, latents):
    method = load_method("galaxydit without a profile")
    plain = latents()
    with method.attach(tiny_wan_pipeline, {"speedup": 2.0}, None):
        found = latents()
    with galaxydit.accelerate(tiny_wan_pipeline, speedup=2.0):
        assert torch.equal(latents(), found)
    assert not torch.equal(plain, found)


def test_methods_that_follow_a_profile_follow_each_given_file(tiny_wan_pipeline, tmp_path):
    wanted = [load_method(name) for name in ("galaxydit schedule", "plain at scheduled levels", "fewer steps")]
    assert [each.name for each in contenders_of(wanted)] == [method.name for method in wanted]
    other, mine = PROFILES / "wan-tiny.json", tmp_path / "mine.json"
    names = [each.name for each in contenders_of(wanted, (other, mine))]
    following = ["galaxydit schedule wan-tiny", "galaxydit schedule mine"]
    levels = ["plain at scheduled levels wan-tiny", "plain at scheduled levels mine"]
    assert names == [*following, *levels, "fewer steps"]
    for each in contenders_of(wanted, (other,)):
        variant = each.variant(each.method.settings(50)[3])
        if each.name == "fewer steps":
            assert not variant.files
            continue
        assert len(variant.files["profile"]) == 64
        with (
            pytest.raises(galaxydit.GalaxyDiTError, match="'wan-tiny' does not belong to this model"),
            each.method.attach(tiny_wan_pipeline, variant.options, None),
        ):
            pass
