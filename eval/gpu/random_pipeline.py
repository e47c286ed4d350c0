"""Wan2.1's whole pipeline on random weights of its true shapes.

Time does not depend on the values of the weights; the videos are noise, so they say nothing about quality. With real
weights, `galaxydit validate` measures both.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from diffusers import AutoencoderKLWan, UniPCMultistepScheduler, WanPipeline
from transformers import AutoTokenizer, UMT5Config, UMT5EncoderModel

from galaxydit.eval.latency.model_shapes import PRESETS, Preset
from galaxydit.eval.latency.random_models import build_transformer, building
from galaxydit.pipelines.model_names import EMBEDDED
from galaxydit.pipelines.published_models import WAN_21_1_3B

UMT5_XXL = {"vocab_size": 256384, "d_model": 4096, "d_kv": 64, "d_ff": 10240, "num_layers": 24, "num_heads": 64}
SETTINGS = {"1.3B": WAN_21_1_3B, "tiny": WAN_21_1_3B}


@dataclass(frozen=True)
class PipelineShape:
    """Shapes of the parts of a pipeline; the autoencoder is the class of diffusers with these arguments."""

    transformer: Preset
    text_encoder: Mapping[str, int] = field(default_factory=lambda: UMT5_XXL)
    autoencoder: Mapping[str, Any] = field(default_factory=dict)  # empty: Wan2.1's


SHAPES = {
    "1.3B": PipelineShape(PRESETS["1.3B"]),
    "tiny": PipelineShape(  # for tests/gpu/measure.py --tiny
        Preset(blocks=2, heads=2, head_dim=16, ffn_dim=32, text_dim=16),
        {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2},
        {"base_dim": 8},
    ),
}


def build_pipeline(model: str, device: torch.device) -> WanPipeline:
    """Wan2.1's pipeline with random weights on `device`: bfloat16, and float32 for the autoencoder.

    `model` is a key of `SHAPES`. The tokenizer is wan-tiny's, because the published one is a file of the real model.
    The scheduler is UniPC, whose flow shift `generate` sets.
    """
    shape = SHAPES[model]
    transformer = build_transformer(shape.transformer, device, torch.bfloat16)
    with building(device, torch.bfloat16):
        text_encoder = UMT5EncoderModel(UMT5Config(**shape.text_encoder)).eval()
    with building(device, torch.float32):
        vae = AutoencoderKLWan(**shape.autoencoder).eval()
    tokenizer = AutoTokenizer.from_pretrained(EMBEDDED["wan-tiny"] / "tokenizer")
    scheduler = UniPCMultistepScheduler.from_pretrained(EMBEDDED["wan-tiny"], subfolder="scheduler")
    return WanPipeline(tokenizer, text_encoder, vae, scheduler, transformer)
