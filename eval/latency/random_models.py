"""Wan2.1 with random weights at its published configuration; latency does not depend on the weights' values."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from diffusers import AutoencoderKLWan, WanTransformer3DModel
from torch import Tensor
from transformers import UMT5Config, UMT5EncoderModel

LATENT_CHANNELS = 16
# What diffusers leaves in float32 when it loads Wan in bfloat16 (WanTransformer3DModel._keep_in_fp32_modules).
FLOAT32_PARTS = ("time_embedder", "scale_shift_table", "norm1", "norm2", "norm3")


@dataclass(frozen=True)
class Preset:
    """Shape of a Wan transformer and of its text input."""

    blocks: int
    heads: int
    head_dim: int
    ffn_dim: int
    text_dim: int = 4096
    text_tokens: int = 512


PRESETS = {
    "1.3B": Preset(blocks=30, heads=12, head_dim=128, ffn_dim=8960),
    "14B": Preset(blocks=40, heads=40, head_dim=128, ffn_dim=13824),
    "tiny": Preset(blocks=8, heads=4, head_dim=32, ffn_dim=512, text_dim=64, text_tokens=32),
}


@dataclass(frozen=True)
class VideoSize:
    """Pixels and frames of a video. Wan compresses 8x in space and 4x in time, and uses 2x2 patches."""

    width: int
    height: int
    frames: int

    def __post_init__(self) -> None:
        if self.width % 16 or self.height % 16 or self.frames % 4 != 1 or min(self.width, self.height, self.frames) < 1:
            raise ValueError(
                f"size is {self}, allowed are WIDTHxHEIGHTxFRAMES with sides divisible by 16 and 4 n + 1 frames: "
                "pass for example 832x480x81"
            )

    @property
    def latent_shape(self) -> tuple[int, int, int, int, int]:
        """`(batch, channels, frames, height, width)`."""
        return 1, LATENT_CHANNELS, (self.frames - 1) // 4 + 1, self.height // 8, self.width // 8

    @property
    def tokens(self) -> int:
        """Number of tokens in the transformer."""
        _, _, frames, height, width = self.latent_shape
        return frames * (height // 2) * (width // 2)

    def __str__(self) -> str:
        return f"{self.width}x{self.height}x{self.frames}"


SIZES = {"480p": VideoSize(832, 480, 81), "720p": VideoSize(1280, 720, 81), "tiny": VideoSize(128, 128, 9)}


def parse_size(text: str) -> VideoSize:
    """Parse a size by name or as WIDTHxHEIGHTxFRAMES; raises ValueError for anything else."""
    if text in SIZES:
        return SIZES[text]
    if not (numbers := re.fullmatch(r"(\d+)x(\d+)x(\d+)", text)):
        raise ValueError(
            f"size is {text!r}, allowed are {', '.join(SIZES)} or WIDTHxHEIGHTxFRAMES: pass for example 832x480x81"
        )
    return VideoSize(*map(int, numbers.groups()))


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Set the dtype of new tensors inside the context, so that a large model is never built in float32."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def build_transformer(preset: Preset, device: torch.device, dtype: torch.dtype) -> WanTransformer3DModel:
    """The transformer with random weights, in the mix of dtypes that diffusers gives a loaded one."""
    with torch.device(device), default_dtype(dtype):
        transformer = WanTransformer3DModel(
            num_attention_heads=preset.heads,
            attention_head_dim=preset.head_dim,
            ffn_dim=preset.ffn_dim,
            num_layers=preset.blocks,
            text_dim=preset.text_dim,
        )
    for name, parameter in transformer.named_parameters():
        if any(part in name.split(".") for part in FLOAT32_PARTS):
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


def build_text_encoder(preset: Preset, device: torch.device, dtype: torch.dtype) -> UMT5EncoderModel:
    """UMT5 with random weights: the XXL encoder of Wan2.1, or a two-layer one for a preset with narrow text."""
    if preset.text_dim == 4096:
        config = UMT5Config(vocab_size=256384, d_model=4096, d_kv=64, num_heads=64, d_ff=10240, num_layers=24)
    else:
        config = UMT5Config(vocab_size=64, d_model=preset.text_dim, d_kv=16, num_heads=4, d_ff=128, num_layers=2)
    with torch.device(device), default_dtype(dtype):
        return UMT5EncoderModel(config).eval().requires_grad_(False)


def build_vae(preset: Preset, device: torch.device) -> AutoencoderKLWan:
    """Wan2.1's video autoencoder with random weights, in float32 as Wan recommends; narrow for the tiny preset."""
    width = {} if preset.text_dim == 4096 else {"base_dim": 8, "num_res_blocks": 1}
    with torch.device(device):
        return AutoencoderKLWan(**width).eval().requires_grad_(False)
