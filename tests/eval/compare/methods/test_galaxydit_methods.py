"""This project's own methods run what a user gets."""

import torch

import galaxydit
from galaxydit.eval.compare.methods import galaxydit_methods


def test_without_a_profile_is_what_a_user_of_a_model_without_one_gets(tiny_wan_pipeline, latents):
    (method,) = [one for one in galaxydit_methods.METHODS if one.name == "galaxydit without a profile"]
    plain = latents()
    with method.attach(tiny_wan_pipeline, {"speedup": 2.0}, None):
        found = latents()
    with galaxydit.accelerate(tiny_wan_pipeline, speedup=2.0):
        assert torch.equal(latents(), found)
    assert not torch.equal(plain, found)
