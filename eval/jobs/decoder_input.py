"""Keep the input of a pipeline's VAE decoder, so that the frames can be computed again without denoising.

Float32 frames take a hundred times as much space; an 8-bit video differs from them by rounding.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from diffusers import DiffusionPipeline
from numpy.typing import NDArray
from safetensors.torch import load, save

from galaxydit.pipelines.memory import free_hooks
from galaxydit.pipelines.video import hash_frames

NAME = "latents"


@contextmanager
def recording(pipe: DiffusionPipeline) -> Iterator[list[torch.Tensor]]:
    """Yield a list that gets a CPU copy of each input of the VAE's decoder; empty without VAE."""
    inputs: list[torch.Tensor] = []
    vae = getattr(pipe, "vae", None)
    if vae is None:
        yield inputs
        return
    decode = vae.decode

    def record(latents: torch.Tensor, *arguments: Any, **options: Any) -> Any:
        inputs.append(latents.detach().to("cpu", copy=True))
        return decode(latents, *arguments, **options)

    vae.decode = record  # on this object alone
    try:
        yield inputs
    finally:
        del vae.decode


def decode_frames(pipe: DiffusionPipeline, latents: torch.Tensor, frames_sha256: str) -> NDArray[np.float32] | None:
    """Frames `(frames, height, width, 3)` in [0, 1]; None if they have another hash, as of a pipeline that does more
    than decode."""
    try:
        with torch.no_grad():
            video = pipe.vae.decode(latents.to(pipe._execution_device), return_dict=False)[0]
        frames = np.asarray(pipe.video_processor.postprocess_video(video, output_type="np")[0], dtype=np.float32)
        free_hooks(pipe)
    except (AttributeError, TypeError, ValueError, RuntimeError):  # the pipeline decodes in another way
        return None
    return frames if hash_frames(frames) == frames_sha256 else None


def to_bytes(latents: torch.Tensor) -> bytes:
    """A safetensors file of the latents."""
    return save({NAME: latents.contiguous()})


def from_bytes(content: bytes) -> torch.Tensor:
    """The latents of `to_bytes`. Raises SafetensorError or KeyError for other content."""
    return load(content)[NAME]
