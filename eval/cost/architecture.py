"""Shapes of the published models, so that a prediction needs neither weights nor torch."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from galaxydit.errors import did_you_mean, refusal
from galaxydit.pipelines.published_models import CHECKPOINTS

FILE = Path(__file__).with_name("architectures.json")
BYTES = 2  # of one bfloat16 value


@dataclass(frozen=True)
class TextEncoder:
    """The model's most expensive text encoder: its number of parameters, and the tokens of one prompt with padding."""

    name: str
    parameters: float
    tokens: int


@dataclass(frozen=True)
class Vae:
    """Shape of a VAE.

    Attributes:
        parameters: number of parameters.
        spatial: pixel rows per latent row, and pixel columns per latent column.
        temporal: frames per latent frame, after the first frame, which has a latent frame of its own.
        latent_channels: channels of a latent.
        decoder_values_per_pixel: values per output pixel of the features in the last stage of the decoder, where
            decoding spends most of its time.
    """

    name: str
    parameters: float
    spatial: int
    temporal: int
    latent_channels: int
    decoder_values_per_pixel: float


@dataclass(frozen=True)
class Architecture:
    """Shape of a video model: its transformer, text encoder and VAE.

    Attributes:
        family: how the blocks are built, one of `galaxydit.eval.cost.operations.BLOCKS`.
        blocks: number of main blocks, without the two kinds below.
        single_blocks: number of HunyuanVideo's blocks with one stream for text and video; 0 for other models.
        control_blocks: number of VACE blocks, which run before the main blocks; 0 for other models.
        heads, head_dim: number of heads of self-attention, and width of a head; their product is the blocks' width.
        ffn_dim: inner width of the feed-forward layer.
        text_tokens: tokens of the text stream.
        text_dim: width of the text stream; None if it equals the blocks' width.
        image_tokens: tokens of an image encoder, which a second cross-attention reads; 0 without an image encoder.
        audio_heads, audio_head_dim, audio_tokens_per_second: heads, width of a head and tokens per second of an audio
            stream that the model denoises with the video; 0 without audio.
        fps: frames per second, from which the audio tokens follow; 0 without audio.
        patch: latent frames, rows and columns of one token.
        branches: number of guidance branches of one step.
        concatenates: whether both branches are one batch, so that a step calls the transformer once.
        transformers: number of denoising transformers; each step uses one of them.
        source: document that states the shape.
        verified: whether `source` is the converter or the configuration of the model.
    """

    family: str
    blocks: int
    heads: int
    head_dim: int
    ffn_dim: int
    text_tokens: int
    branches: int
    text_encoder: TextEncoder
    vae: Vae
    source: str
    verified: bool
    concatenates: bool = False
    single_blocks: int = 0
    control_blocks: int = 0
    text_dim: int | None = None
    image_tokens: int = 0
    audio_heads: int = 0
    audio_head_dim: int = 0
    audio_tokens_per_second: float = 0.0
    fps: float = 0.0
    patch: tuple[int, int, int] = (1, 2, 2)
    transformers: int = 1

    @property
    def width(self) -> int:
        """Width of the video stream."""
        return self.heads * self.head_dim

    def tokens(self, height: int, width: int, frames: int) -> int:
        """Number of tokens of one video; `height` and `width` in pixels, `frames` of the decoded video."""
        latent = (frames - 1) // self.vae.temporal + 1
        of_frame = (height // self.vae.spatial // self.patch[1]) * (width // self.vae.spatial // self.patch[2])
        return math.ceil(latent / self.patch[0]) * of_frame

    def latent_bytes(self, height: int, width: int, frames: int) -> int:
        """Bytes of one latent video in bfloat16; `height` and `width` in pixels, `frames` of the decoded video."""
        latent = (frames - 1) // self.vae.temporal + 1
        return BYTES * self.vae.latent_channels * latent * (height // self.vae.spatial) * (width // self.vae.spatial)


def repository_name(hub_id: str) -> str:
    """The name of a repository in lower case, without its organisation and without the ending "-Diffusers"."""
    return hub_id.split("/")[-1].casefold().removesuffix("-diffusers")


@cache
def architectures() -> Mapping[str, Architecture]:
    """All known architectures by hub id."""
    entries: dict[str, dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))
    return {hub_id: _architecture(entry) for hub_id, entry in entries.items()}


def _architecture(entry: dict[str, Any]) -> Architecture:
    parts = {"text_encoder": TextEncoder(**entry["text_encoder"]), "vae": Vae(**entry["vae"])}
    patch = tuple(entry.get("patch", (1, 2, 2)))
    return Architecture(**entry | parts | {"patch": patch})


def architecture_of(model: str) -> Architecture:
    """The architecture of a model, given by its name in `CHECKPOINTS`, such as "wan2.1-t2v-1.3b", or by its hub id.

    The organisation of a hub id is not compared, because models move to other organisations. Raises GalaxyDiTError for
    an unknown model.
    """
    hub_id = CHECKPOINTS[model].hub_id if model in CHECKPOINTS else model
    by_name = {repository_name(hub_id): shape for hub_id, shape in architectures().items()}
    name = repository_name(hub_id)
    if name in by_name:
        return by_name[name]
    near = did_you_mean(model, [*CHECKPOINTS, *architectures()])
    expected = f"one of {', '.join(CHECKPOINTS)}, or one of their hub ids"
    raise refusal("model", model, expected, f"choose one of these{near}")
