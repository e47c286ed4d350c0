"""Shapes of the published models, so that a prediction needs neither weights nor torch."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from galaxydit.errors import did_you_mean, refusal
from galaxydit.pipelines.published_models import CHECKPOINTS
from galaxydit.validation import parse

FILE = Path(__file__).with_name("architectures.json")
BYTES = 2  # of one bfloat16 value


@dataclass(frozen=True)
class TextEncoder:
    """The model's most expensive text encoder; `tokens` of one prompt with padding."""

    name: str
    parameters: float
    tokens: int


@dataclass(frozen=True)
class Vae:
    name: str
    parameters: float
    spatial: int  # pixel rows (and columns) per latent row (column)
    temporal: int  # frames per latent frame, after the first, which has its own
    latent_channels: int
    decoder_values_per_pixel: float  # of the features in the last stage, where decoding spends most of its time


@dataclass(frozen=True)
class Architecture:
    """Shape of a video model; 0 for parts that it lacks."""

    family: str  # one of `operations.BLOCKS`
    blocks: int  # main blocks, without single and control blocks
    heads: int
    head_dim: int
    ffn_dim: int
    text_tokens: int
    branches: int  # of guidance, in one step
    text_encoder: TextEncoder
    vae: Vae
    source: str  # document that states the shape
    verified: bool  # `source` is the model's converter or configuration
    concatenates: bool = False  # both branches are one batch
    single_blocks: int = 0  # of HunyuanVideo, one stream for text and video
    control_blocks: int = 0  # of VACE, before the main blocks
    text_dim: int | None = None  # None if it equals the blocks' width
    image_tokens: int = 0  # of an image encoder, read by a second cross-attention
    audio_heads: int = 0  # of an audio stream that is denoised with the video
    audio_head_dim: int = 0
    audio_tokens_per_second: float = 0.0
    fps: float = 0.0  # frames per second, for the audio tokens
    patch: tuple[int, int, int] = (1, 2, 2)  # latent frames, rows and columns of a token
    transformers: int = 1  # that denoise; each step uses one

    @property
    def width(self) -> int:
        return self.heads * self.head_dim

    def tokens(self, height: int, width: int, frames: int) -> int:
        """Tokens of one video of this size in pixels and decoded frames."""
        latent = (frames - 1) // self.vae.temporal + 1
        of_frame = (height // self.vae.spatial // self.patch[1]) * (width // self.vae.spatial // self.patch[2])
        return math.ceil(latent / self.patch[0]) * of_frame

    def latent_bytes(self, height: int, width: int, frames: int) -> int:
        """Bytes of one latent video in bfloat16, of this size in pixels and decoded frames."""
        latent = (frames - 1) // self.vae.temporal + 1
        return BYTES * self.vae.latent_channels * latent * (height // self.vae.spatial) * (width // self.vae.spatial)


def repository_name(hub_id: str) -> str:
    """The name in lower case, without organisation and "-Diffusers"."""
    return hub_id.split("/")[-1].casefold().removesuffix("-diffusers")


@cache
def architectures() -> Mapping[str, Architecture]:
    shapes: Mapping[str, Architecture] = parse(dict[str, Architecture], json.loads(FILE.read_text("utf-8")), FILE.name)
    return shapes


def architecture_of(model: str) -> Architecture:
    """The architecture of a name in `CHECKPOINTS` or a hub id, whose organisation may differ, because models move.

    Raises GalaxyDiTError for an unknown model.
    """
    hub_id = CHECKPOINTS[model].hub_id if model in CHECKPOINTS else model
    by_name = {repository_name(hub_id): shape for hub_id, shape in architectures().items()}
    name = repository_name(hub_id)
    if name in by_name:
        return by_name[name]
    near = did_you_mean(model, [*CHECKPOINTS, *architectures()])
    expected = f"one of {', '.join(CHECKPOINTS)}, or one of their hub ids"
    raise refusal("model", model, expected, f"choose one of these{near}")
