"""A Wan transformer with random weights, and inputs for it; latency does not depend on the values of the weights."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from diffusers import WanTransformer3DModel
from torch import Tensor

from galaxydit.eval.latency.latency_settings import Preset, VideoSize


@contextmanager
def building(device: torch.device, dtype: torch.dtype) -> Iterator[None]:
    """Context manager in which new modules get weights on `device` and in `dtype`, so that no large model is built in
    float32 first.
    """
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            yield
    finally:
        torch.set_default_dtype(before)


def build_transformer(preset: Preset, device: torch.device, dtype: torch.dtype) -> WanTransformer3DModel:
    """A transformer of the preset's shape with random weights.

    It has `dtype`, but float32 in the modules that diffusers keeps in float32 when it loads a Wan transformer.
    """
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
    """Inputs of the transformer: two latents with their timesteps, and the text embedding of each guidance branch.

    Latents are `(1, channels, frames, height, width)`, timesteps `(1,)`, text embeddings `(1, tokens, dim)`. A run
    changes from one latent and timestep to the other to force a full step.
    """

    latents: tuple[Tensor, Tensor]
    timesteps: tuple[Tensor, Tensor]
    text: tuple[Tensor, Tensor]


def build_inputs(preset: Preset, size: VideoSize, device: torch.device, dtype: torch.dtype) -> Inputs:
    """Random inputs for a transformer of the preset's shape and a video of this size, in the transformer's `dtype`."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(device, dtype)

    first = draw(*size.latent_shape)  # the second is as near as the latent of a next step
    return Inputs(
        latents=(first, first + 0.05 * draw(*size.latent_shape)),
        timesteps=(torch.tensor([900], device=device), torch.tensor([600], device=device)),
        text=(draw(1, preset.text_tokens, preset.text_dim), draw(1, preset.text_tokens, preset.text_dim)),
    )
