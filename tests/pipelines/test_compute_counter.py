"""The counter against counts by hand."""

from dataclasses import replace

import pytest
import torch

from galaxydit.pipelines.compute_counter import ComputeCounter, measure_parts, parts_of_call
from galaxydit.pipelines.generate import generate

PROMPT = "a red ball moves left over a plain background"


@pytest.fixture
def parts(tiny_wan_pipeline, tiny_settings):
    return measure_parts(tiny_wan_pipeline, PROMPT, tiny_settings)


def test_the_parts_are_attention_cross_attention_and_feed_forward_of_every_block(parts):
    expected = {f"blocks.{index}.{name}" for index in range(3) for name in ("attn1", "attn2", "ffn")}
    assert {part.path for part in parts} == expected


def test_the_weights_are_the_operations_of_matrix_products_and_attention(parts):
    width, inner, tokens, text = 32, 64, 8, 512  # 2 latent frames of 4x4 latents in patches of 2x2
    flops = {part.path.removeprefix("blocks.0."): part.flops for part in parts if part.path.startswith("blocks.0.")}
    assert flops["ffn"] == 2 * 2 * tokens * width * inner
    assert flops["attn1"] == 4 * 2 * tokens * width**2 + 2 * 2 * tokens**2 * width
    assert flops["attn2"] == 2 * (2 * tokens + 2 * text) * width**2 + 2 * 2 * tokens * text * width


def test_a_plain_generation_counts_two_branches_at_every_step(tiny_wan_pipeline, tiny_settings, parts):
    with ComputeCounter(tiny_wan_pipeline.transformer, parts) as counter:
        generate(tiny_wan_pipeline, PROMPT, tiny_settings, seed=0)
    assert counter.flops == pytest.approx(2 * tiny_settings.steps * sum(part.flops for part in parts))


def test_half_the_tokens_count_half(tiny_wan_pipeline, parts):
    latents = torch.zeros(2, 16, 2, 4, 4)
    inputs = {"timestep": torch.tensor([500, 500]), "encoder_hidden_states": torch.zeros(2, 512, 128)}
    transformer = tiny_wan_pipeline.transformer
    pair = parts_of_call(transformer, (latents,), inputs)
    with ComputeCounter(transformer, pair) as counter:
        transformer(latents[:1], **{name: value[:1] for name, value in inputs.items()})
    assert counter.flops == pytest.approx(sum(part.flops for part in pair) / 2)


def test_a_module_whose_forward_is_replaced_does_not_count(tiny_wan_pipeline, tiny_settings, parts):
    block = tiny_wan_pipeline.transformer.blocks[1]
    block.attn1.forward = lambda hidden, *rest: hidden
    with ComputeCounter(tiny_wan_pipeline.transformer, parts) as counter:
        generate(tiny_wan_pipeline, PROMPT, replace(tiny_settings, steps=2), seed=0)
    expected = sum(part.flops for part in parts if part.path != "blocks.1.attn1")
    assert counter.flops == pytest.approx(2 * 2 * expected)


def test_nothing_is_left_on_the_transformer(tiny_wan_pipeline, parts):
    with ComputeCounter(tiny_wan_pipeline.transformer, parts):
        pass
    hooks = [m for m in tiny_wan_pipeline.transformer.modules() if m._forward_pre_hooks or m._forward_hooks]
    assert not hooks


def test_the_most_bytes_held_are_kept(tiny_wan_pipeline, tiny_settings, parts):
    answers = iter([5, 9, 7])
    with ComputeCounter(tiny_wan_pipeline.transformer, parts, lambda: next(answers)) as counter:
        generate(tiny_wan_pipeline, PROMPT, replace(tiny_settings, steps=24), seed=0)
    assert counter.bytes_held == 9
