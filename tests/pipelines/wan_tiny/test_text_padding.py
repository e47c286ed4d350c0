"""Training on short captions must compute what WanPipeline computes on captions padded to 512 tokens."""

import pytest
import torch

from galaxydit.pipelines.wan_tiny.tools import build
from galaxydit.pipelines.wan_tiny.tools.text_padding import pad_counted, prepare_for_training


@pytest.fixture
def transformer():
    """wan-tiny's own transformer, of its first two blocks."""
    torch.manual_seed(0)
    whole = build.build_transformer().eval()
    whole.blocks = whole.blocks[:2]
    return whole


@pytest.fixture
def inputs():
    generator = torch.Generator().manual_seed(1)
    latents = torch.randn(3, build.LATENT_CHANNELS, 2, 8, 8, generator=generator)
    text = 3 * torch.randn(3, 24, build.TEXT_DIM, generator=generator)
    mask = torch.arange(24) < torch.tensor([[24], [9], [1]])
    return latents, torch.tensor([999.0, 500.0, 20.0]), text * mask[..., None], mask


def padding_of(mask):
    """How many padding tokens WanPipeline adds to texts of this mask."""
    return build.MAX_TEXT_TOKENS - mask.sum(dim=1, keepdim=True)


@torch.no_grad()
def test_counted_padding_equals_padding_to_the_full_length(transformer, inputs):
    latents, timestep, text, mask = inputs
    padded = torch.nn.functional.pad(text, (0, 0, 0, build.MAX_TEXT_TOKENS - text.shape[1]))
    expected = transformer(latents, timestep, padded, return_dict=False)[0]
    unpadded = transformer(latents, timestep, text, return_dict=False)[0]
    assert (unpadded - expected).abs().max() > 1e-3  # so that the padding matters here at all
    prepare_for_training(transformer)
    counted = pad_counted(transformer, text, mask, padding_of(mask))
    assert counted.shape == (3, 25, build.TEXT_DIM)
    output = transformer(latents, timestep, counted, return_dict=False)[0]
    torch.testing.assert_close(output, expected, atol=1e-5, rtol=0)


def test_gradients_equal_those_of_padding_to_the_full_length(transformer, inputs):
    latents, timestep, text, mask = inputs
    weight = transformer.blocks[0].attn2.to_k.weight
    padded = torch.nn.functional.pad(text, (0, 0, 0, build.MAX_TEXT_TOKENS - text.shape[1]))
    loss = transformer(latents, timestep, padded, return_dict=False)[0].square().mean()
    (expected,) = torch.autograd.grad(loss, weight)
    prepare_for_training(transformer)
    counted = pad_counted(transformer, text, mask, padding_of(mask))
    loss = transformer(latents, timestep, counted, return_dict=False)[0].square().mean()
    (gradient,) = torch.autograd.grad(loss, weight)
    torch.testing.assert_close(gradient, expected, atol=1e-6, rtol=1e-3)
    assert expected.abs().max() > 1e-5
