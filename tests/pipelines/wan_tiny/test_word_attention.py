"""The transplant of cross-attention, and what training measures of it, compared with WanPipeline's real padding."""

import copy

import pytest
import torch
from diffusers.models.transformers.transformer_wan import WanAttnProcessor

from galaxydit.pipelines.wan_tiny.tools import build, transformer, word_attention
from galaxydit.pipelines.wan_tiny.tools.denoiser import Denoiser
from galaxydit.pipelines.wan_tiny.tools.word_attention import DONORS, FirstBlock, PaddingAttention, transplant

CAPTIONS = ("a red ball orbits over a plain background", "a blue square moves left over a dotted background")


@pytest.fixture
def model(monkeypatch, tiny_transformer):
    torch.manual_seed(0)
    monkeypatch.setattr(build, "build_transformer", lambda: tiny_transformer(8).train())
    return Denoiser()


def tokens_of(captions):
    tokens = build.build_tokenizer()(list(captions), padding="max_length", max_length=24, return_tensors="pt")
    return tokens.input_ids


def inputs():
    generator = torch.Generator().manual_seed(1)
    return torch.randn(2, 16, 3, 4, 4, generator=generator), torch.tensor([300.0, 700.0])


def padded_text(model, tokens):
    """Text embeddings as WanPipeline makes them, with zeros up to 512 tokens."""
    mask = tokens.ne(0)
    text = model.text_encoder(tokens, mask.long()).last_hidden_state * mask[..., None]
    return torch.nn.functional.pad(text, (0, 0, 0, build.MAX_TEXT_TOKENS - text.shape[1]))


@torch.no_grad()
def test_the_transplant_keeps_the_output_on_padding_and_changes_that_on_words(model):
    before = copy.deepcopy(model.transformer)
    transplant(model.transformer)
    zero = before.condition_embedder.text_embedder(torch.zeros(1, 3, build.TEXT_DIM))
    words = before.condition_embedder.text_embedder(torch.randn(1, 3, build.TEXT_DIM))
    for index, block in enumerate(model.transformer.blocks):
        old, new = before.blocks[index].attn2, block.attn2
        for attention in (old, new):
            attention.set_processor(WanAttnProcessor())
        hidden = torch.randn(1, 5, 32)
        torch.testing.assert_close(new(hidden, zero), old(hidden, zero), atol=1e-5, rtol=1e-4)
        changed = not torch.allclose(new(hidden, words), old(hidden, words), atol=1e-4)
        assert changed == (index in DONORS)


@torch.no_grad()
def test_word_shares_are_those_under_the_padding_of_the_pipeline(model):
    attention = PaddingAttention(model.transformer)
    tokens = tokens_of(CAPTIONS)
    latents, timestep = inputs()
    seen = {}
    first = model.transformer.blocks[0].attn2
    first.register_forward_pre_hook(lambda module, args: seen.update(hidden=args[0]))
    model(latents, timestep, tokens, torch.full((2, 1), 40.0))
    text = model.transformer.condition_embedder.text_embedder(padded_text(model, tokens))
    query = first.norm_q(first.to_q(seen["hidden"])).unflatten(2, (first.heads, -1))
    key = first.norm_k(first.to_k(text)).unflatten(2, (first.heads, -1))
    weights = torch.softmax(torch.einsum("bqhd,bkhd->bhqk", query, key) / query.shape[-1] ** 0.5, dim=-1)
    is_word = torch.nn.functional.pad(tokens.ne(0), (0, build.MAX_TEXT_TOKENS - tokens.shape[1]))
    expected = (weights * is_word[:, None, None]).sum(-1).mean().item()
    assert attention.word_shares(torch.tensor([True, True]))[0] == pytest.approx(expected, rel=1e-4)


def test_the_penalty_moves_attention_to_the_words(model):
    attention = PaddingAttention(model.transformer)
    rows = torch.tensor([True, True])
    optimizer = torch.optim.SGD(model.transformer.parameters(), lr=0.5)
    shares = []
    for _ in range(5):
        model(*inputs(), tokens_of(CAPTIONS), torch.full((2, 1), 40.0))
        shares.append(attention.word_shares(rows))
        optimizer.zero_grad()
        attention.penalty(rows).backward()
        optimizer.step()
    assert shares[0].keys() == DONORS.keys()
    assert all(shares[-1][index] > shares[0][index] for index in DONORS)


@torch.no_grad()
def test_the_logged_branch_difference_is_that_of_the_pipeline(model):
    first_block = FirstBlock(model)
    tokens, empty = tokens_of(CAPTIONS), tokens_of([""])
    latents, timestep = inputs()
    model(latents, timestep, tokens, torch.full((2, 1), 7.0))
    logged = first_block.branch_difference(tokens, empty, torch.tensor([0, 1]))
    for block in model.transformer.blocks:
        block.attn1.set_processor(WanAttnProcessor())
        block.attn2.set_processor(WanAttnProcessor())
    outputs = []
    model.transformer.blocks[0].register_forward_hook(lambda module, args, output: outputs.append(output))
    for text in (tokens, empty.expand_as(tokens)):
        model.transformer(latents, timestep, padded_text(model, text))
    conditional, unconditional = outputs
    expected = (conditional - unconditional).abs().mean() / unconditional.abs().mean()
    assert logged == pytest.approx(expected.item(), rel=1e-3)
    assert logged > 0


def test_the_floor_penalty_raises_the_branch_difference_and_is_0_above_the_floor(model, monkeypatch):
    first_block = FirstBlock(model)
    tokens, empty, rows = tokens_of(CAPTIONS), tokens_of([""]), torch.tensor([0, 1])
    model(*inputs(), tokens, torch.full((2, 1), 7.0))
    before = first_block.branch_difference(tokens, empty, rows)
    monkeypatch.setattr(word_attention, "BRANCH_FLOOR", 2 * before)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(5):
        optimizer.zero_grad()
        first_block.floor_penalty(tokens, empty, rows).backward()
        optimizer.step()
    assert first_block.branch_difference(tokens, empty, rows) > 1.05 * before
    monkeypatch.setattr(word_attention, "BRANCH_FLOOR", before / 10)
    assert first_block.floor_penalty(tokens, empty, rows) == 0
    assert first_block.floor_penalty(tokens, empty, rows[:0]) == 0


def test_the_rate_is_constant_after_the_warm_up_whatever_the_number_of_steps():
    few, many = (transformer.TransformerSettings(steps, 2, 0.01, 0.02) for steps in (100, 5000))
    for step in (0, 20, 60, 99):
        assert few.rate_share(step) == many.rate_share(step)
    assert few.rate_share(99) == 1.0


def test_the_cool_down_starts_at_the_full_rate_and_ends_near_zero():
    settings = transformer.TransformerSettings(50, 2, 0.01, 0.02, cool_down=True)
    shares = [settings.rate_share(step) for step in range(50)]
    assert shares[0] == 1.0
    assert shares[-1] == pytest.approx(transformer.COOLED_SHARE)
    assert shares == sorted(shares, reverse=True)
