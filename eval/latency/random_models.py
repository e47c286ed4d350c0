"""A Wan transformer with random weights, and inputs for it; latency does not depend on the values of the weights."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from diffusers import WanTransformer3DModel
from torch import Tensor

from galaxydit.eval.latency.model_shapes import Preset, VideoSize


@contextmanager
def building(device: torch.device, dtype: torch.dtype) -> Iterator[None]:
    """New modules get weights on `device` in `dtype`, so that no large model is built in float32 first."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            yield
    finally:
        torch.set_default_dtype(before)


def build_transformer(preset: Preset, device: torch.device, dtype: torch.dtype) -> WanTransformer3DModel:
    """A transformer with random weights, in float32 where diffusers keeps it."""
    with building(device, dtype):
        transformer = WanTransformer3DModel(
            num_attention_heads=preset.heads,
            attention_head_dim=preset.head_dim,
            ffn_dim=preset.ffn_dim,
            num_layers=preset.blocks,
            text_dim=preset.text_dim,
        )
    for name, parameter in transformer.named_parameters():
        if set(transformer._keep_in_fp32_modules) & set(name.split(".")):
            parameter.data = parameter.data.float()
    return transformer.eval().requires_grad_(False)


@dataclass(frozen=True)
class Inputs:
    """Two latents `(1, channels, frames, height, width)` with timesteps `(1,)`, and text `(1, tokens, dim)` by branch.

    A run changes from one latent and timestep to the other to force a full step.
    """

    latents: tuple[Tensor, Tensor]
    timesteps: tuple[Tensor, Tensor]
    text: tuple[Tensor, Tensor]


def build_inputs(preset: Preset, size: VideoSize, device: torch.device, dtype: torch.dtype) -> Inputs:
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(device, dtype)

    return Inputs(
        latents=(draw(*size.latent_shape), draw(*size.latent_shape)),
        timesteps=(torch.tensor([900], device=device), torch.tensor([600], device=device)),
        text=(draw(1, preset.text_tokens, preset.text_dim), draw(1, preset.text_tokens, preset.text_dim)),
    )
