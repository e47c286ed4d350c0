"""Whole pipelines of the other families: what their own loops hand to the transformer, with a stand-in for the VAE."""

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import diffusers
import pytest
import torch
from diffusers import (
    ClassifierFreeGuidance,
    CogVideoXDDIMScheduler,
    DDIMScheduler,
    EDMEulerScheduler,
    EulerAncestralDiscreteScheduler,
    FlowMatchEulerDiscreteScheduler,
    UniPCMultistepScheduler,
)
from PIL import Image
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool3d
from transformers import BatchFeature

import galaxydit
from galaxydit import FixedSteps, GalaxyDiTConfig, Threshold

OFTEN = GalaxyDiTConfig(Threshold(50.0), max_consecutive=2)
NEVER = GalaxyDiTConfig(FixedSteps(tuple(range(60))))
REUSED = [3, 4, 6, 7, 9, 10]
IMAGE = Image.new("RGB", (32, 32), (200, 30, 30))
VIDEO = [Image.new("RGB", (32, 32), (200, 20 * index, 30)) for index in range(5)]
SIZE = {"height": 32, "width": 32, "num_frames": 5}
NAMED, UNNAMED, ONE_BATCH = ["cond", "uncond"], ["call 0", "call 1"], ["call 0"]


class Part(SimpleNamespace):
    """Stands in for a part of a pipeline that is not tested."""

    def to(self, *_: Any, **__: Any) -> "Part":
        return self


def vae() -> Part:
    """Four channels, 4x smaller in time and 8x in space: averages of the video."""

    def encode(video: Tensor) -> Part:
        frames, height, width = video.shape[-3:]
        small = adaptive_avg_pool3d(video, ((frames - 1) // 4 + 1, height // 8, width // 8))
        latents = small[:, [0, 1, 2, 0]]
        return Part(latents=latents, latent_dist=Part(sample=lambda generator: latents, mode=lambda: latents))

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
        encode=encode,
        decode=decode,
    )


class ImageEncoder(nn.Module):
    """Gives every image the same `(1, tokens, dim)`."""

    dtype, device = torch.float32, torch.device("cpu")

    def __init__(self, tokens: int, dim: int) -> None:
        super().__init__()
        self.features = torch.ones(1, tokens, dim)

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

    def build(self) -> tuple[Any, Callable[[], Tensor]]:
        """The pipeline, and a function that runs 12 steps of it from the same seed."""
        torch.manual_seed(0)
        transformer = getattr(diffusers, self.transformer)(**self.sizes).eval()
        with torch.no_grad():
            for parameter in transformer.parameters():
                if not parameter.any():
                    parameter.normal_(std=0.1)
        kind = getattr(diffusers, self.pipeline)
        parts = dict.fromkeys(kind._get_signature_keys(kind)[0]) | self.parts
        pipe = kind(**parts | {"vae": vae(), "transformer": transformer, "scheduler": self.scheduler()})
        pipe.set_progress_bar_config(disable=True)

        def run() -> Tensor:
            torch.manual_seed(0)  # for schedulers that draw from the global generator
            arguments = {"num_inference_steps": 12, "output_type": "latent"} | self.arguments
            output = pipe(generator=torch.Generator().manual_seed(0), **arguments, return_dict=False)[0]
            return torch.cat(output) if isinstance(output, list) else output

        return pipe, run


_HEADS = {"num_attention_heads": 2, "attention_head_dim": 12}
_CHANNELS = {"in_channels": 4, "out_channels": 4}
_WAN = _HEADS | _CHANNELS | {"text_dim": 16, "freq_dim": 16, "ffn_dim": 32, "num_layers": 4}
_COSMOS = _HEADS | {
    "out_channels": 4,
    "num_layers": 4,
    "text_embed_dim": 16,
    "adaln_lora_dim": 4,
    "max_size": (4, 8, 8),
}
_COSMOS |= {"concat_padding_mask": False}
_HUNYUAN = _HEADS | _CHANNELS | {"rope_axes_dim": (4, 4, 4), "text_embed_dim": 16, "num_layers": 2}
_HUNYUAN |= {"num_single_layers": 2, "num_refiner_layers": 1, "pooled_projection_dim": 8}
_ANIMATE = {"motion_encoder_channel_sizes": {"4": 16, "8": 16, "16": 16}, "motion_encoder_size": 16, "image_dim": 16}
_ANIMATE |= {"motion_style_dim": 8, "motion_dim": 4, "motion_encoder_dim": 16, "face_encoder_hidden_dim": 16}
_ANIMATE |= {"face_encoder_num_heads": 2, "inject_face_latents_blocks": 2, "in_channels": 12, "latent_channels": 4}
_SAFE = {"safety_checker": Part(check_text_safety=lambda text: True, check_video_safety=lambda video: video)}
_POOLED = {"pooled_prompt_embeds": embedding(8), "negative_pooled_prompt_embeds": embedding(8, seed=1)}
_COGVIDEO = _HEADS | {"attention_head_dim": 16, "in_channels": 8, "out_channels": 4, "time_embed_dim": 8}
_COGVIDEO |= {"text_embed_dim": 16, "num_layers": 4, "sample_width": 4, "sample_height": 4, "sample_frames": 5}

PIPELINES = {
    "Wan VACE": Tiny(
        "WanVACEPipeline",
        "WanVACETransformer3DModel",
        _WAN | {"vace_layers": [0, 2], "vace_in_channels": 72},
        NAMED,
        texts(video=VIDEO) | SIZE,
    ),
    "Wan Animate": Tiny(
        "WanAnimatePipeline",
        "WanAnimateTransformer3DModel",
        _WAN | _ANIMATE,
        NAMED,
        texts(image=IMAGE, pose_video=VIDEO, face_video=VIDEO, segment_frame_length=5, guidance_scale=3.0)
        | {"height": 32, "width": 32},
        parts={"image_encoder": ImageEncoder(4, 16), "image_processor": process},
    ),
    "ChronoEdit": Tiny(
        "ChronoEditPipeline",
        "ChronoEditTransformer3DModel",
        _WAN | {"in_channels": 12, "image_dim": 16, "added_kv_proj_dim": 24},
        UNNAMED,
        {"prompt_embeds": embedding(512, 16), "negative_prompt_embeds": embedding(512, 16, seed=1), "image": IMAGE}
        | SIZE,
        parts={"image_encoder": ImageEncoder(4, 16), "image_processor": process},
    ),
    "Cosmos text": Tiny(
        "CosmosTextToWorldPipeline",
        "CosmosTransformer3DModel",
        _COSMOS | {"in_channels": 4},
        UNNAMED,
        texts() | SIZE,
        EDMEulerScheduler,
        _SAFE,
    ),
    "Cosmos video": Tiny(
        "CosmosVideoToWorldPipeline",
        "CosmosTransformer3DModel",
        _COSMOS | {"in_channels": 5},
        UNNAMED,
        texts(image=IMAGE) | SIZE,
        EDMEulerScheduler,
        _SAFE,
    ),
    "Cosmos-Predict2 image": Tiny(
        "Cosmos2TextToImagePipeline",
        "CosmosTransformer3DModel",
        _COSMOS | {"in_channels": 4},
        UNNAMED,
        texts(height=32, width=32),
        flow(use_karras_sigmas=True),
        _SAFE,
    ),
    "Cosmos-Predict2 video": Tiny(
        "Cosmos2VideoToWorldPipeline",
        "CosmosTransformer3DModel",
        _COSMOS | {"in_channels": 5},
        UNNAMED,
        texts(image=IMAGE) | SIZE,
        flow(use_karras_sigmas=True),
        _SAFE,
    ),
    "Cosmos-Predict2.5": Tiny(
        "Cosmos2_5_PredictBasePipeline",
        "CosmosTransformer3DModel",
        _COSMOS | {"in_channels": 5},
        UNNAMED,
        texts() | SIZE,
        lambda: UniPCMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True),
        _SAFE,
    ),
    "HunyuanVideo image": Tiny(
        "HunyuanVideoImageToVideoPipeline",
        "HunyuanVideoTransformer3DModel",
        _HUNYUAN | {"in_channels": 9, "patch_size": 1, "image_condition_type": "latent_concat"},
        UNNAMED,
        texts(image=IMAGE, true_cfg_scale=4.0) | _POOLED | masks() | SIZE,
    ),
    "Framepack": Tiny(
        "HunyuanVideoFramepackPipeline",
        "HunyuanVideoFramepackTransformer3DModel",
        _HUNYUAN | {"patch_size": 2, "has_image_proj": True, "image_proj_dim": 8, "has_clean_x_embedder": True},
        UNNAMED,
        texts(image=IMAGE, true_cfg_scale=4.0, latent_window_size=2) | _POOLED | masks() | SIZE,
        parts={"image_encoder": ImageEncoder(3, 8), "feature_extractor": process},
    ),
    "CogVideoX image": Tiny(
        "CogVideoXImageToVideoPipeline",
        "CogVideoXTransformer3DModel",
        _COGVIDEO | {"max_text_seq_length": 8, "use_rotary_positional_embeddings": True},
        ["cond_uncond"],
        texts(image=IMAGE) | SIZE,
        CogVideoXDDIMScheduler,
    ),
    "LTX condition": Tiny(
        "LTXConditionPipeline",
        "LTXVideoTransformer3DModel",
        _HEADS | _CHANNELS | {"cross_attention_dim": 24, "num_layers": 4, "caption_channels": 16},
        ["cond_uncond"],
        texts(image=IMAGE) | masks() | SIZE,
    ),
    "Latte": Tiny(
        "LattePipeline",
        "LatteTransformer3DModel",
        _CHANNELS
        | {"num_attention_heads": 2, "attention_head_dim": 8, "num_layers": 2, "caption_channels": 16}
        | {"cross_attention_dim": 16, "sample_size": 4, "patch_size": 2, "activation_fn": "gelu-approximate"}
        | {"num_embeds_ada_norm": 1000, "norm_type": "ada_norm_single", "norm_elementwise_affine": False}
        | {"video_length": 2, "out_channels": 8},
        ONE_BATCH,
        texts(height=32, width=32, video_length=2, negative_prompt=None),
        DDIMScheduler,
    ),
    "Allegro": Tiny(
        "AllegroPipeline",
        "AllegroTransformer3DModel",
        _CHANNELS
        | {"num_attention_heads": 2, "attention_head_dim": 12, "num_layers": 4, "caption_channels": 16}
        | {"cross_attention_dim": 24, "sample_width": 4, "sample_height": 4, "sample_frames": 2},
        ONE_BATCH,
        texts(negative_prompt=None) | masks() | SIZE,
        EulerAncestralDiscreteScheduler,
    ),
    "EasyAnimate": Tiny(
        "EasyAnimatePipeline",
        "EasyAnimateTransformer3DModel",
        _HEADS
        | _CHANNELS
        | {"attention_head_dim": 16, "num_layers": 4, "mmdit_layers": 2, "patch_size": 2}
        | {"text_embed_dim": 16, "time_embed_dim": 8},
        ONE_BATCH,
        texts() | masks() | SIZE,
    ),
    "SANA-Video": Tiny(
        "SanaVideoPipeline",
        "SanaVideoTransformer3DModel",
        _HEADS
        | _CHANNELS
        | {"num_layers": 4, "num_cross_attention_heads": 2, "cross_attention_head_dim": 12}
        | {"cross_attention_dim": 24, "caption_channels": 16, "sample_size": 4},
        ONE_BATCH,
        texts(height=32, width=32, frames=5, use_resolution_binning=False, negative_prompt=None) | masks(),
    ),
    "Motif": Tiny(
        "MotifVideoPipeline",
        "MotifVideoTransformer3DModel",
        _HEADS
        | {"rope_axes_dim": (4, 4, 4), "text_embed_dim": 16, "num_layers": 2, "num_single_layers": 2, "patch_size": 1}
        | {"image_embed_dim": 8, "in_channels": 9, "out_channels": 4},
        ["pred_cond", "pred_uncond"],
        texts() | masks() | SIZE,
        parts={"guider": ClassifierFreeGuidance(3.0)},
    ),
}


@pytest.mark.parametrize("name", PIPELINES)
def test_every_step_of_a_pipeline_is_computed_or_reused_as_decided(name: str) -> None:
    tiny = PIPELINES[name]
    pipe, run = tiny.build()
    plain = run()
    with pytest.warns(galaxydit.NoEffectWarning):
        unchanged = galaxydit.accelerate(pipe, threshold=0)
    with unchanged:
        assert torch.equal(run(), plain)
    assert unchanged.report.compute_fraction == 1.0
    with galaxydit.accelerate(pipe, config=OFTEN) as acceleration:
        reused = run()
        assert torch.equal(run(), reused)
    assert len(acceleration.reports) == 2
    report = acceleration.report
    assert [(call.step, call.branch, call.reused) for call in report.calls] == [
        (step, branch, step in REUSED) for step in range(12) for branch in tiny.branches
    ]
    assert not report.notes
    assert reused.isfinite().all()
    assert not torch.equal(reused, plain)
    registries = [module._diffusers_hook for module in pipe.transformer.modules() if hasattr(module, "_diffusers_hook")]
    assert not [hook for registry in registries for hook in registry.hooks]
    assert torch.equal(run(), plain)
