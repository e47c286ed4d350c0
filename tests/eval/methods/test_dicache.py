"""DiCache's alignment."""

from collections.abc import Callable
from typing import Any

import torch
from diffusers import WanPipeline
from torch import Tensor

from galaxydit.eval.methods.accumulation import Accumulation, attached
from galaxydit.eval.methods.dicache import AlignedResidual, alignment, settings


def test_alignment_stays_between_once_and_twice_the_way() -> None:
    assert [alignment(moved, 2.0) for moved in (1.0, 3.0, 5.0)] == [1.0, 1.5, 2.0]
    assert alignment(1.0, 0.0) == 2.0


def test_a_reused_step_runs_the_first_block_and_aligns_the_last_two_residuals(
    tiny_wan_pipeline: WanPipeline, latents: Callable[..., Tensor], blocks_run: list[list[int]]
) -> None:
    blocks = tiny_wan_pipeline.transformer.blocks
    into, probes, out = [], [], []
    hooks = [
        blocks[0].register_forward_pre_hook(lambda _, args: into.append(args[0])),
        blocks[-1].register_forward_hook(lambda _, args, output: out.append(output)),
    ]
    compute = blocks[0].forward

    def probe_block(*arguments: Any, **named: Any) -> Tensor:
        probes.append(compute(*arguments, **named))
        return probes[-1]

    blocks[0].forward = probe_block  # a hook around the block would see a skipped one pass its input through
    options = {"proxy": "block_output", "guidance_alignment": False, "reuse": AlignedResidual(), "order": 1}
    with attached(tiny_wan_pipeline, Accumulation(9.0, first=3), **options):
        latents(num_inference_steps=4)
    for hook in hooks:
        hook.remove()
    assert blocks_run == [[0, 1, 2]] * 6 + [[0]] * 2
    for branch in (0, 1):
        older, newer, now = (2 + branch, 4 + branch, 6 + branch)
        residual = [out[i] - into[i] for i in (older, newer)]
        probe = [probes[i] - into[i] for i in (older, newer, now)]
        share = float((probe[2] - probe[0]).abs().mean() / (probe[1] - probe[0]).abs().mean())
        share = min(2.0, max(1.0, share))
        expected = into[now] + residual[0] + share * (residual[1] - residual[0])
        torch.testing.assert_close(out[now], expected)


def test_settings_hold_the_authors_warm_up_and_none() -> None:
    assert {one["first"] for one in settings(50)} == {10, 1}
