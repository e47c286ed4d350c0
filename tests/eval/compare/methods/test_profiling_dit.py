"""ProfilingDiT's intervals and blocks, worked out by hand."""

from collections.abc import Callable

import pytest
import torch
from diffusers import WanPipeline
from torch import Tensor

from galaxydit.eval.compare.methods.profiling_dit import (
    METHOD,
    IntervalRule,
    _AttentionProbe,
    background_blocks,
    consecutive_segments,
    foreground,
)
from galaxydit.eval.compare.rules.decision import StepObservation
from galaxydit.pipelines.settings import GenerationSettings


def test_steps_before_the_first_and_each_interval_are_computed() -> None:
    rule = IntervalRule(first=2, interval=3)
    full = [step for step in range(10) if not rule.decide(StepObservation(step, 10))]
    assert full == [0, 1, 2, 5, 8]


def test_background_are_the_blocks_that_attend_least_to_the_foreground() -> None:
    assert background_blocks([1.2, 0.9, 1.1, 0.8, 1.0], 0.6) == [1, 3, 4]


def test_neighbours_form_one_segment() -> None:
    assert consecutive_segments([0, 2, 3, 4, 7]) == [(0, 0), (2, 4), (7, 7)]


def test_foreground_is_what_differs_from_most_tokens_in_the_order_of_tokens() -> None:
    latents = torch.zeros(1, 2, 3, 4, 6)
    latents[0, :, 1, 2:4, 4:6] = 5.0  # frame 1, patch row 1, patch column 2
    mask = foreground(latents, (1, 2, 2))
    assert mask.nonzero().flatten().tolist() == [6 * 1 + 3 * 1 + 2]


def test_the_probe_sees_the_attention_that_goes_to_the_mask(
    tiny_wan_pipeline: WanPipeline, latents: Callable[..., Tensor]
) -> None:
    attention = tiny_wan_pipeline.transformer.blocks[1].attn1
    plain = latents(num_inference_steps=2)
    tokens = plain.shape[2] * (plain.shape[3] // 2) * (plain.shape[4] // 2)
    mask = torch.arange(tokens) % 3 == 0
    inputs = []
    hook = attention.register_forward_pre_hook(lambda _, args: inputs.append(args))
    with _AttentionProbe(tiny_wan_pipeline, mask) as probe:
        probed = latents(num_inference_steps=2)
    hook.remove()
    assert torch.equal(probed, plain)

    hidden, _, _, (cosines, sines) = inputs[0]
    with torch.no_grad():
        query, key = attention.norm_q(attention.to_q(hidden)), attention.norm_k(attention.to_k(hidden))

    def rotate(tensor: Tensor) -> Tensor:
        even, odd = tensor.unflatten(2, (attention.heads, -1)).unflatten(-1, (-1, 2)).unbind(-1)
        cos, sin = cosines[..., 0::2], sines[..., 1::2]
        return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2).transpose(1, 2)

    query, key = rotate(query), rotate(key)
    weights = (query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5).softmax(dim=-1)
    expected = float(weights[..., mask].sum(dim=-1).mean() / mask.float().mean())
    assert probe.profile()[1] == pytest.approx(expected, rel=1e-4)


def test_the_blocks_that_ran_are_the_foregrounds(
    tiny_wan_pipeline: WanPipeline, latents: Callable[..., Tensor], blocks_run: list[list[int]]
) -> None:
    setting = {"first": 1, "interval": 2, "share": 0.67}
    with METHOD.attach(tiny_wan_pipeline, setting, {"foreground_attention": [0.9, 1.3, 1.0]}):
        latents(num_inference_steps=4)
    assert blocks_run == [[0, 1, 2]] * 4 + [[1]] * 2 + [[0, 1, 2]] * 2


def test_the_profile_has_a_number_for_each_block(tiny_wan_pipeline: WanPipeline, settings: GenerationSettings) -> None:
    assert METHOD.calibrate is not None
    profile = METHOD.calibrate(tiny_wan_pipeline, ["a red ball", "a blue box"], settings, 0)["foreground_attention"]
    assert len(profile) == 3
    assert all(0 < value < 3 for value in profile)
