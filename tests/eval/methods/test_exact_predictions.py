"""Exact predictions show what rounding alone costs."""

import torch

from galaxydit.eval.methods.method_registry import load_method

SETTING = {"speedup": 2.0, "of": 12}


def test_in_float32_they_give_the_plain_latent_at_half_of_the_blocks(tiny_wan_pipeline, latents):
    plain = latents()
    with load_method("exact predictions").attach(tiny_wan_pipeline, SETTING, None):
        assert torch.equal(latents(), plain)
        assert torch.equal(latents(), plain), "the second generation counts its steps anew"
    assert torch.equal(latents(), plain)


def test_in_16_bits_they_differ_by_rounding(tiny_wan_pipeline, latents):
    tiny_wan_pipeline.transformer.to(torch.bfloat16)
    plain = latents()
    with load_method("exact predictions").attach(tiny_wan_pipeline, SETTING, None):
        found = latents()
    assert 0 < (found.float() - plain.float()).norm() / plain.float().norm() < 0.05
