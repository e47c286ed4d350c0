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
    # of the features in the last stage, where decoding spends most of its time; of a transformer that decodes, the
    # number with as many operations
    decoder_values_per_pixel: float
    clip: int = 0  # frames that are encoded together, where the first one has no latent frame of its own
    clip_latents: int = 0  # latent frames of one clip; a video ends with so many frames more

    def latent_frames(self, frames: int) -> int:
        """Latent frames of a video; of clips, as `video_latent_num_frames` of MiniMax-H3 in diffusers counts them."""
        if not self.clip:
            return (frames - 1) // self.temporal + 1
        clips = math.ceil((frames - self.clip_latents) / self.clip)
        return clips * self.clip_latents + 2


@dataclass(frozen=True)
class Architecture:
    """Shape of a video model; 0 for parts that it lacks."""

    family: str  # one of `operations.BLOCKS`
    blocks: int  # main blocks, without single and control blocks
    heads: int
    head_dim: int
    ffn_dim: int
    text_tokens: int
    branches: int  # predictions in one step, one for each term of guidance
    text_encoder: TextEncoder
    vae: Vae
    source: str  # document that states the shape
    verified: bool  # `source` is the model's converter or configuration
    concatenates: bool = False  # the first two branches are one batch
    single_blocks: int = 0  # of HunyuanVideo, one stream for text and video
    control_blocks: int = 0  # of VACE, before the main blocks
    hidden_dim: int = 0  # of the tokens; 0 if it is heads * head_dim
    modulation_weights: int = 0  # of a block's projection of the time embedding, if they are many
    reference_frames: int = 0  # latent frames of given images, in the same sequence
    face_blocks: int = 0  # of Wan Animate: blocks that read the motion of a face, between main blocks
    text_dim: int | None = None  # None if it equals the blocks' width
    image_tokens: int = 0  # of an image encoder, read by a second cross-attention
    audio_heads: int = 0  # of an audio stream that is denoised with the video
    audio_head_dim: int = 0
    audio_ffn_dim: int = 0  # 0 if it is 4 * audio_heads * audio_head_dim
    audio_tokens_per_second: float = 0.0
    fps: float = 0.0  # frames per second, for the audio tokens
    patch: tuple[int, int, int] = (1, 2, 2)  # latent frames, rows and columns of a token
    transformers: int = 1  # that denoise; each step uses one
    uncalled_steps: int = 0  # of `num_inference_steps`, where the last noise level, 0, counts as one

    @property
    def width(self) -> int:
        """Of the tokens between blocks."""
        return self.hidden_dim or self.heads * self.head_dim

    @property
    def calls(self) -> int:
        """Transformer calls in one step."""
        return self.branches - int(self.concatenates)

    def audio_tokens(self, frames: int) -> int:
        if self.audio_tokens_per_second:
            return round(frames / self.fps * self.audio_tokens_per_second)
        return 0

    def tokens(self, height: int, width: int, frames: int) -> int:
        """Tokens of one video of this size in pixels and decoded frames."""
        latent = self.vae.latent_frames(frames) + self.reference_frames
        of_frame = (height // self.vae.spatial // self.patch[1]) * (width // self.vae.spatial // self.patch[2])
        return math.ceil(latent / self.patch[0]) * of_frame

    def latent_bytes(self, height: int, width: int, frames: int) -> int:
        """Bytes of one latent video in bfloat16, of this size in pixels and decoded frames."""
        latent = self.vae.latent_frames(frames)
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
