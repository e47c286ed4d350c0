"""Whole pipelines of every family with random weights, small enough that a step takes milliseconds."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from diffusers import (
    CogVideoXDDIMScheduler,
    CogVideoXDPMScheduler,
    CogVideoXPipeline,
    CogVideoXTransformer3DModel,
    FlowMatchEulerDiscreteScheduler,
    HunyuanVideoPipeline,
    HunyuanVideoTransformer3DModel,
    LTXPipeline,
    LTXVideoTransformer3DModel,
    WanPipeline,
)
from torch import Tensor


@dataclass
class TinyPipeline:
    """A pipeline and what it is called with: embeddings stand in for the text encoders."""

    pipe: Any
    arguments: dict[str, Any]
    without_guidance: dict[str, Any] = field(default_factory=lambda: {"guidance_scale": 1.0})

    def run(self, **changes: Any) -> Tensor:
        """Latents of 12 steps; the seed is always the same."""
        settings = self.arguments | {"num_inference_steps": 12, "output_type": "latent"} | changes
        torch.manual_seed(0)  # the stochastic samplers draw from the global generator
        return self.pipe(**({"generator": torch.Generator().manual_seed(0)} | settings)).frames


def embeddings() -> Callable[..., Tensor]:
    generator = torch.Generator().manual_seed(1)
    return lambda *shape: torch.randn(1, *shape, generator=generator)


def build_ltx() -> TinyPipeline:
    transformer = LTXVideoTransformer3DModel(
        in_channels=8,
        out_channels=8,
        num_attention_heads=2,
        attention_head_dim=16,
        cross_attention_dim=32,
        num_layers=3,
        caption_channels=32,
    )
    scheduler = FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True)
    pipe = LTXPipeline(scheduler=scheduler, vae=None, text_encoder=None, tokenizer=None, transformer=transformer)
    embedding = embeddings()
    arguments = {
        "prompt_embeds": embedding(8, 32),
        "negative_prompt_embeds": embedding(8, 32),
        "prompt_attention_mask": torch.ones(1, 8),
        "negative_prompt_attention_mask": torch.ones(1, 8),
        "height": 64,
        "width": 64,
        "num_frames": 9,
    }
    return TinyPipeline(pipe, arguments)


def build_cogvideox(scheduler: Any) -> TinyPipeline:
    transformer = CogVideoXTransformer3DModel(
        num_attention_heads=2,
        attention_head_dim=16,
        in_channels=4,
        out_channels=4,
        time_embed_dim=8,
        text_embed_dim=32,
        num_layers=3,
        sample_width=8,
        sample_height=8,
        sample_frames=9,
        max_text_seq_length=8,
    )
    pipe = CogVideoXPipeline(tokenizer=None, text_encoder=None, vae=None, transformer=transformer, scheduler=scheduler)
    embedding = embeddings()
    texts = {"prompt_embeds": embedding(8, 32), "negative_prompt_embeds": embedding(8, 32)}
    return TinyPipeline(pipe, texts | {"height": 64, "width": 64, "num_frames": 9})


def build_hunyuan() -> TinyPipeline:
    transformer = HunyuanVideoTransformer3DModel(
        in_channels=4,
        out_channels=4,
        num_attention_heads=2,
        attention_head_dim=12,
        num_layers=2,
        num_single_layers=2,
        num_refiner_layers=1,
        patch_size=1,
        text_embed_dim=16,
        pooled_projection_dim=8,
        rope_axes_dim=(4, 4, 4),
    )
    absent = dict.fromkeys(("text_encoder", "text_encoder_2", "tokenizer", "tokenizer_2", "vae"))
    scheduler = FlowMatchEulerDiscreteScheduler(shift=7.0)
    pipe = HunyuanVideoPipeline(**absent, transformer=transformer, scheduler=scheduler)
    embedding = embeddings()
    arguments = {"height": 32, "width": 32, "num_frames": 9, "true_cfg_scale": 4.0}
    for prefix in ("", "negative_"):
        arguments[f"{prefix}prompt_embeds"] = embedding(8, 16)
        arguments[f"{prefix}pooled_prompt_embeds"] = embedding(8)
        arguments[f"{prefix}prompt_attention_mask"] = torch.ones(1, 8)
    return TinyPipeline(pipe, arguments, without_guidance={"true_cfg_scale": 1.0})


WAN_ARGUMENTS = {
    "prompt": "a red ball moves left over a plain background",
    "height": 32,
    "width": 32,
    "num_frames": 5,
    "guidance_scale": 3.0,
    "max_sequence_length": 16,
}
BUILDERS: dict[str, Callable[[], TinyPipeline]] = {
    "LTX": build_ltx,
    "CogVideoX DDIM": lambda: build_cogvideox(CogVideoXDDIMScheduler()),
    "CogVideoX DPM": lambda: build_cogvideox(CogVideoXDPMScheduler()),
    "HunyuanVideo": build_hunyuan,
}


@pytest.fixture
def tiny_pipeline() -> Callable[[str], TinyPipeline]:
    """Builds a tiny pipeline of the family of this name, with the same weights at each call."""

    def build(name: str) -> TinyPipeline:
        torch.manual_seed(0)
        tiny = BUILDERS[name]()
        tiny.pipe.transformer.eval()
        tiny.pipe.set_progress_bar_config(disable=True)
        return tiny

    return build


@pytest.fixture
def tiny_wan(tiny_wan_pipeline: WanPipeline) -> TinyPipeline:
    """WanPipeline with its text encoder."""
    return TinyPipeline(tiny_wan_pipeline, dict(WAN_ARGUMENTS))
