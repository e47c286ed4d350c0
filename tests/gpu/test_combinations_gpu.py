"""Combinations that need an accelerator: offloading to a real device, Inductor, CUDA graphs, and GPU attention."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from diffusers import WanPipeline
from torch import Tensor

import galaxydit
from galaxydit import FixedSteps, GalaxyDiTConfig, Threshold

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
DEVICE = torch.device("cuda")
NEVER = GalaxyDiTConfig(FixedSteps(tuple(range(12))))
CONFIGS = {
    reuse: GalaxyDiTConfig(Threshold(50.0), max_consecutive=2, reuse=reuse, proxy="block_output")
    for reuse in ("output", "residual")
}


def group_offload(pipe: WanPipeline, **settings: Any) -> None:
    pipe.to(DEVICE)
    pipe.transformer.enable_group_offload(onload_device=DEVICE, offload_device=torch.device("cpu"), **settings)


def compile_blocks(pipe: WanPipeline, **settings: Any) -> None:
    pipe.to(DEVICE).transformer.compile_repeated_blocks(**settings)


def attend_with(pipe: WanPipeline, backend: str) -> None:
    pipe.to(DEVICE).transformer.set_attention_backend(backend)


CHANGES: dict[str, Callable[[WanPipeline], None]] = {
    "model offload": lambda pipe: pipe.enable_model_cpu_offload(),
    "sequential offload": lambda pipe: pipe.enable_sequential_cpu_offload(),
    "group offload": lambda pipe: group_offload(pipe, offload_type="block_level", num_blocks_per_group=1),
    "group offload, stream": lambda pipe: group_offload(pipe, offload_type="leaf_level", use_stream=True),
    "compiled blocks": lambda pipe: compile_blocks(pipe, fullgraph=True),
    "CUDA graphs": lambda pipe: compile_blocks(pipe, mode="reduce-overhead"),
    "native flash attention": lambda pipe: attend_with(pipe, "_native_flash"),
    "flex attention": lambda pipe: attend_with(pipe, "flex"),
}


def run(pipe: WanPipeline) -> Tensor:
    torch.compiler.cudagraph_mark_step_begin()
    latents = pipe(
        "a red ball moves left over a plain background",
        height=32,
        width=32,
        num_frames=5,
        num_inference_steps=12,
        guidance_scale=3.0,
        max_sequence_length=16,
        output_type="latent",
        generator=torch.Generator().manual_seed(0),
    ).frames
    return latents.cpu().clone()


@pytest.mark.parametrize("reuse", CONFIGS)
@pytest.mark.parametrize("change", CHANGES)
def test_decisions_and_latents_repeat_and_removal_gives_the_plain_ones(
    tiny_wan_pipeline: WanPipeline, change: str, reuse: str
) -> None:
    pipe = tiny_wan_pipeline.to(torch.bfloat16)
    torch.compiler.reset()
    CHANGES[change](pipe)
    plain = run(pipe)
    with galaxydit.accelerate(pipe, config=NEVER):
        torch.testing.assert_close(run(pipe), plain, atol=0.02, rtol=0.02)
    with galaxydit.accelerate(pipe, config=CONFIGS[reuse]) as acceleration:
        latents = run(pipe)
        torch.testing.assert_close(run(pipe), latents, atol=0.02, rtol=0.02)
    assert [report.reused_steps for report in acceleration.reports] == [6, 6]
    assert latents.isfinite().all()
    torch.testing.assert_close(run(pipe), plain, atol=0.02, rtol=0.02)
