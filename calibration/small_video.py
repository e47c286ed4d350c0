"""The size of a calibration's recordings: fewer pixels and frames, because schedules hardly depend on the size."""

import math
from dataclasses import replace
from typing import Any

from diffusers import DiffusionPipeline

from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.sizes import has_one_size, modulus_of, pixels_of_token
from galaxydit.profiles.fingerprint import plain_config
from galaxydit.runtime.recognition import transformers_of

TOKENS = 1800  # of a small video, at most
SHARE = 0.4  # of the tokens of the full video, at most
LATENT_FRAMES = 4  # at most, and at most half of the full video's, rounded up
TEMPORAL = ("vae_scale_factor_temporal", "vae_temporal_compression_ratio", "vae_temporal_scale_factor")


def small_settings(pipe: DiffusionPipeline, settings: GenerationSettings) -> GenerationSettings:
    """`settings` with a smaller size of the same aspect ratio; unchanged if the model has one size or none is known."""
    height, width, frames = settings.height, settings.width, settings.num_frames
    if height is None or width is None or has_one_size(pipe):
        return settings
    temporal = next((getattr(pipe, name) for name in TEMPORAL if hasattr(pipe, name)), 4)
    patch: Any = plain_config(next(iter(transformers_of(pipe).values()))).get("patch_size_t") or 1
    latents = 1 if frames is None else (frames - 1) // temporal + 1
    few = max(2, min(LATENT_FRAMES, -(-latents // 2)))
    few = min(latents, -(-few // patch) * patch)
    modulus, side = modulus_of(pipe), pixels_of_token(pipe)
    per_frame = (height // side) * (width // side)
    scale = math.sqrt(min(TOKENS, SHARE * latents * per_frame) / (few * per_frame))
    if scale < 1:
        smaller = (max(2 * modulus, round(scale * length / modulus) * modulus) for length in (height, width))
        height, width = (min(new, old) for new, old in zip(smaller, (height, width), strict=True))
    frames = None if frames is None else min(frames, (few - 1) * temporal + 1)
    return replace(settings, height=height, width=width, num_frames=frames)
