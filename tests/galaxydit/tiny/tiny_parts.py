"""Whole pipelines with a tiny transformer of the real class, and stand-ins for the parts that are not tested."""

from collections.abc import Callable
from dataclasses import dataclass, field
from inspect import signature
from types import SimpleNamespace
from typing import Any

import diffusers
import torch
from diffusers import FlowMatchEulerDiscreteScheduler, UniPCMultistepScheduler
from PIL import Image
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool3d
from transformers import BatchFeature

from galaxydit import GalaxyDiTConfig, Threshold

OFTEN = GalaxyDiTConfig(Threshold(50.0), max_consecutive=2)
REUSED = [3, 4, 6, 7, 9, 10]
IMAGE = Image.new("RGB", (32, 32), (200, 30, 30))
VIDEO = [Image.new("RGB", (32, 32), (200, 20 * index, 30)) for index in range(5)]
SIZE = {"height": 32, "width": 32, "num_frames": 5}


class Part(SimpleNamespace):
    """Stands in for a part of a pipeline that is not tested."""

    def to(self, *_: Any, **__: Any) -> "Part":
        return self

    def __getitem__(self, index: int) -> Any:
        return list(vars(self).values())[index]


def vae() -> Part:
    """Four channels, 4x smaller in time and 8x in space: averages of the video."""

    def encode(video: Tensor) -> Part:
        frames, height, width = video.shape[-3:]
        small = adaptive_avg_pool3d(video, ((frames - 1) // 4 + 1, height // 8, width // 8))
        latents = small[:, [0, 1, 2, 0]]
        return Part(latent_dist=Part(sample=lambda generator: latents, mode=lambda: latents), latents=latents)

    def decode(latents: Tensor, **_: Any) -> tuple[Tensor]:
        return (latents[:, :3].repeat_interleave(8, -1).repeat_interleave(8, -2).repeat_interleave(4, 2)[:, :, 3:],)

    config = Part(
        z_dim=4,
        latent_channels=4,
        scaling_factor=1.0,
        latents_mean=[0.0] * 4,
        latents_std=[1.0] * 4,
        scale_factor_temporal=4,
        scale_factor_spatial=8,
        temporal_compression_ratio=4,
        spatial_compression_ratio=8,
        block_out_channels=[1] * 4,
        invert_scale_latents=False,
        cache_mag_vae=True,
    )
    return Part(
        config=config,
        dtype=torch.float32,
        device=torch.device("cpu"),
        temperal_downsample=[False, True, True],
        temporal_compression_ratio=4,
        spatial_compression_ratio=8,
        latents_mean=torch.zeros(4),
        latents_std=torch.ones(4),
        modules=list,
        encode=encode,
        decode=decode,
    )


class ImageEncoder(nn.Module):
    """Gives every image the same `(1, tokens, dim)`."""

    dtype, device = torch.float32, torch.device("cpu")

    def __init__(self, tokens: int, dim: int) -> None:
        super().__init__()
        self.features = nn.Parameter(torch.ones(1, tokens, dim))

    def forward(self, **_: Any) -> Part:
        return Part(hidden_states=[self.features] * 2, last_hidden_state=self.features)


def process(**_: Any) -> BatchFeature:
    return BatchFeature({"pixel_values": torch.zeros(1)})


def embedding(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(1, *shape, generator=torch.Generator().manual_seed(seed))


def texts(**masks: Any) -> dict[str, Any]:
    return {"prompt_embeds": embedding(8, 16), "negative_prompt_embeds": embedding(8, 16, seed=1)} | masks


def masks(dtype: torch.dtype = torch.float32) -> dict[str, Any]:
    return dict.fromkeys(("prompt_attention_mask", "negative_prompt_attention_mask"), torch.ones(1, 8, dtype=dtype))


def flow(**settings: Any) -> Callable[[], Any]:
    return lambda: FlowMatchEulerDiscreteScheduler(**{"shift": 3.0} | settings)


def unipc(**settings: Any) -> Callable[[], Any]:
    return lambda: UniPCMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True, **settings)


def build_transformer(class_name: str, sizes: dict[str, Any]) -> Any:
    """The transformer, with the same random weights at each call; zero-initialised ones are random, too."""
    torch.manual_seed(0)
    built = getattr(diffusers, class_name)(**sizes).eval()
    with torch.no_grad():
        for parameter in built.parameters():
            if not parameter.any():
                parameter.normal_(std=0.1)
    return built


@dataclass(frozen=True)
class Tiny:
    """A pipeline of diffusers with a transformer of these sizes.

    Attributes:
        pipeline, transformer: class names.
        sizes: arguments of the transformer.
        branches: names of the calls of one step.
        arguments: of the pipeline's call.
        scheduler: makes one.
        parts: of the pipeline, beside the transformer, the scheduler and the VAE; all others are None.
    """

    pipeline: str
    transformer: str
    sizes: dict[str, Any]
    branches: list[str]
    arguments: dict[str, Any] = field(default_factory=texts)
    scheduler: Callable[[], Any] = field(default_factory=flow)
    parts: dict[str, Any] = field(default_factory=dict)

    def build(self) -> tuple[Any, Callable[..., Tensor]]:
        """The pipeline, and a function that runs 12 steps of it from the same seed."""
        kind = getattr(diffusers, self.pipeline)
        parts = dict.fromkeys(kind._get_signature_keys(kind)[0]) | {"vae": vae()} | self.parts
        parts |= {"transformer": build_transformer(self.transformer, self.sizes), "scheduler": self.scheduler()}
        pipe = kind(**parts)
        pipe.set_progress_bar_config(disable=True)
        takes_steps = "num_inference_steps" in signature(kind.__call__).parameters

        def run(steps: int = 12, **changes: Any) -> Tensor:
            torch.manual_seed(0)  # for schedulers that draw from the global generator
            arguments = {"num_inference_steps": steps} if takes_steps else {}
            arguments |= {"output_type": "latent"} | self.arguments | changes
            output = pipe(generator=torch.Generator().manual_seed(0), **arguments, return_dict=False)[0]
            return torch.cat([part.flatten() for part in output]) if isinstance(output, list) else output

        return pipe, run
