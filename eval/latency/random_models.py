"""Wan2.1 with random weights at its published configuration; latency does not depend on the weights' values."""

from dataclasses import dataclass

import torch
from diffusers import AutoencoderKLWan, WanTransformer3DModel
from torch import Tensor
from transformers import AutoModelForTextEncoding, UMT5Config

from galaxydit.eval.latency.device_clock import StepClock
from galaxydit.eval.latency.latency_settings import Preset, VideoSize


def build_transformer(preset: Preset, device: torch.device, dtype: torch.dtype) -> WanTransformer3DModel:
    """The transformer with random weights, in the mix of dtypes that diffusers gives a loaded one."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)  # a large model is never built in float32
    try:
        with torch.device(device):
            transformer = WanTransformer3DModel(
                num_attention_heads=preset.heads,
                attention_head_dim=preset.head_dim,
                ffn_dim=preset.ffn_dim,
                num_layers=preset.blocks,
                text_dim=preset.text_dim,
            )
    finally:
        torch.set_default_dtype(before)
    for name, parameter in transformer.named_parameters():
        if set(transformer._keep_in_fp32_modules) & set(name.split(".")):
            parameter.data = parameter.data.float()
    return transformer.eval().requires_grad_(False)


@dataclass(frozen=True)
class Inputs:
    """Inputs of a trajectory: two latents and timesteps to alternate between, and one text per branch."""

    latents: tuple[Tensor, Tensor]
    timesteps: tuple[Tensor, Tensor]
    text: tuple[Tensor, Tensor]


def build_inputs(preset: Preset, size: VideoSize, device: torch.device, dtype: torch.dtype) -> Inputs:
    """Random inputs of the true shapes, in the dtype that a pipeline casts them to."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(device, dtype)

    return Inputs(
        latents=(draw(*size.latent_shape), draw(*size.latent_shape)),
        timesteps=(torch.tensor([900], device=device), torch.tensor([600], device=device)),
        text=(draw(1, preset.text_tokens, preset.text_dim), draw(1, preset.text_tokens, preset.text_dim)),
    )


@torch.no_grad()
def text_encoder_seconds(preset: Preset, device: torch.device, dtype: torch.dtype) -> float:
    """Seconds to encode both prompts, after a warm-up, with a random UMT5: XXL, or two layers for narrow text."""
    if preset.text_dim == 4096:
        config = UMT5Config(vocab_size=256384, d_model=4096, d_kv=64, num_heads=64, d_ff=10240, num_layers=24)
    else:
        config = UMT5Config(vocab_size=64, d_model=preset.text_dim, d_kv=16, num_heads=4, d_ff=128, num_layers=2)
    with torch.device(device):
        encoder = AutoModelForTextEncoding.from_config(config, dtype=dtype).eval()
    tokens = torch.ones(1, preset.text_tokens, dtype=torch.long, device=device)
    encoder(input_ids=tokens, attention_mask=tokens)
    clock = StepClock(device)
    for _ in range(2):
        encoder(input_ids=tokens, attention_mask=tokens)
    clock.mark()
    return sum(clock.milliseconds()) / 1000


@torch.no_grad()
def decoder_seconds(preset: Preset, size: VideoSize, device: torch.device) -> float:
    """Seconds to decode one video, after a warm-up on one latent frame, with a random autoencoder in float32."""
    width = {} if preset.text_dim == 4096 else {"base_dim": 8, "num_res_blocks": 1}  # Wan2.1's own by default
    with torch.device(device):
        vae = AutoencoderKLWan(**width).eval()
    latents = torch.randn(size.latent_shape).to(device)
    vae.decode(latents[:, :, :1])
    clock = StepClock(device)
    vae.decode(latents)
    clock.mark()
    return sum(clock.milliseconds()) / 1000
