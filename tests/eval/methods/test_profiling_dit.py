"""ProfilingDiT's intervals and blocks, worked out by hand."""

from collections.abc import Callable

import pytest
import torch
from diffusers import WanPipeline
from torch import Tensor

from galaxydit.eval.methods.method_registry import load_method
from galaxydit.eval.methods.profiling_dit import (
    background_blocks,
    consecutive_segments,
    foreground,
    is_full,
    probed,
)
from galaxydit.pipelines.settings import GenerationSettings

METHOD, PUBLISHED = load_method("ProfilingDiT"), load_method("ProfilingDiT published")


def full_steps(setting: dict, steps: int) -> list[int]:
    return [step for step in range(steps) if is_full(setting, step)]


def test_the_first_steps_and_each_interval_are_computed() -> None:
    assert full_steps({"first": 2, "interval": 3}, 10) == [0, 1, 2, 5, 8]
    assert full_steps({"full": [0, 4, 9]}, 10) == [0, 4, 9]


def test_the_published_rows_compute_the_steps_and_the_share_of_blocks_of_the_authors() -> None:
    listed, every_sixth = PUBLISHED.settings(50)
    assert full_steps(listed, 50) == [0, 1, 2, 3, 4, 5, 6, 18, 26, 32, 38, 42, 46, 48]
    assert full_steps(every_sixth, 50) == [0, 1, 2, 3, 4, 5, *range(6, 50, 6)]
    assert len(background_blocks(range(40), listed["share"])) == 28


def test_background_are_the_blocks_that_attend_least_to_the_foreground() -> None:
    assert background_blocks([1.2, 0.9, 1.1, 0.8, 1.0], 0.6) == [1, 3, 4]


def test_neighbours_form_one_segment() -> None:
    assert consecutive_segments([0, 2, 3, 4, 7]) == [[0], [2, 3, 4], [7]]


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
    with probed(tiny_wan_pipeline, mask) as profile:
        with_probe = latents(num_inference_steps=2)
    hook.remove()
    assert torch.equal(with_probe, plain)

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
    assert profile()[1] == pytest.approx(expected, rel=1e-4)


def test_the_blocks_that_ran_are_the_foregrounds(
    tiny_wan_pipeline: WanPipeline, latents: Callable[..., Tensor], blocks_run: list[list[int]]
) -> None:
    setting = {"first": 1, "interval": 2, "share": 0.67}
    with METHOD.attach(tiny_wan_pipeline, setting, {"foreground_attention": [0.9, 1.3, 1.0]}):
        latents(num_inference_steps=4)
    assert blocks_run == [[0, 1, 2]] * 4 + [[1]] * 2 + [[0, 1, 2]] * 2


@pytest.mark.parametrize("profile", [[0.9, 1.3, 1.0], [1.3, 0.9, 1.0]])
def test_a_reused_segment_adds_its_residual_of_the_last_full_step(
    profile: list[float], tiny_wan_pipeline: WanPipeline, latents: Callable[..., Tensor]
) -> None:
    """The hidden states around each block, in each branch; two segments of a block, or a segment of two blocks."""
    seen: list[list[tuple[Tensor, Tensor]]] = [[], [], []]
    setting = {"first": 1, "interval": 2, "share": 0.67}
    with METHOD.attach(tiny_wan_pipeline, setting, {"foreground_attention": profile}):
        hooks = [
            block.register_forward_hook(lambda _, args, output, found=found: found.append((args[0], output)))
            for block, found in zip(tiny_wan_pipeline.transformer.blocks, seen, strict=True)
        ]
        latents(num_inference_steps=3)
        latents(num_inference_steps=3)  # the generation before must leave nothing behind
    for hook in hooks:
        hook.remove()
    for segment in consecutive_segments(background_blocks(profile, 0.67)):
        first, last = seen[segment[0]], seen[segment[-1]]
        for generation in (0, 6):
            for branch in (0, 1):
                full, reused = generation + 2 + branch, generation + 4 + branch  # steps 1 and 2
                residual = last[full][1] - first[full][0]
                assert residual.abs().max() > 1e-3
                torch.testing.assert_close(last[reused][1], first[reused][0] + residual)


def test_the_profile_has_a_number_for_each_block(tiny_wan_pipeline: WanPipeline, settings: GenerationSettings) -> None:
    assert METHOD.calibrate is not None
    profile = METHOD.calibrate(tiny_wan_pipeline, ["a red ball", "a blue box"], settings, 0)["foreground_attention"]
    assert len(profile) == 3
    assert all(0 < value < 3 for value in profile)
