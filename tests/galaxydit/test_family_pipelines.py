"""Whole pipelines whose loops differ: three branches, guiders, inverted sigmas, chunks, frames at different noise."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from diffusers import (
    ClassifierFreeGuidance,
    FlowMatchEulerDiscreteScheduler,
    HeliosPipeline,
    HeliosScheduler,
    HeliosTransformer3DModel,
    HunyuanVideo15Pipeline,
    HunyuanVideo15Transformer3DModel,
    Kandinsky5T2VPipeline,
    Kandinsky5Transformer3DModel,
    MochiPipeline,
    MochiTransformer3DModel,
    SkipLayerGuidance,
    SkyReelsV2DiffusionForcingPipeline,
    SkyReelsV2Pipeline,
    SkyReelsV2Transformer3DModel,
    UniPCMultistepScheduler,
)
from diffusers.hooks import LayerSkipConfig
from diffusers.modular_pipelines import WanBlocks
from torch import Tensor

import galaxydit
from galaxydit import FixedSteps, GalaxyDiTConfig, Threshold

OFTEN = GalaxyDiTConfig(Threshold(50.0), max_consecutive=2)
NEVER = GalaxyDiTConfig(FixedSteps(tuple(range(60))))
REUSED = [3, 4, 6, 7, 9, 10]
HEADS = {"num_attention_heads": 2, "attention_head_dim": 12, "in_channels": 4, "out_channels": 4}
LIKE_WAN = HEADS | {"text_dim": 16, "freq_dim": 16, "ffn_dim": 32, "num_layers": 4}
Run = Callable[..., Tensor]


class Part(SimpleNamespace):
    """Stands in for a VAE, of which a pipeline reads a few numbers."""


def embedding(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(1, *shape, generator=torch.Generator().manual_seed(seed))


def texts(**more: Any) -> dict[str, Any]:
    arguments = {"prompt_embeds": embedding(8, 16), "negative_prompt_embeds": embedding(8, 16, seed=1)}
    return arguments | {"height": 32, "width": 32, "num_frames": 5} | more


def runner(pipe: Any, **arguments: Any) -> tuple[Any, Run]:
    """The pipeline, and a function that runs 12 steps of it from the same seed."""
    pipe.transformer.eval()
    pipe.set_progress_bar_config(disable=True)

    def run(**changes: Any) -> Tensor:
        settings = {"num_inference_steps": 12, "output_type": "latent"} | arguments | changes
        return pipe(generator=torch.Generator().manual_seed(0), **settings).frames

    return pipe, run


def mochi() -> tuple[Any, Run]:
    """One concatenated batch; the scheduler's sigmas rise."""
    transformer = MochiTransformer3DModel(
        in_channels=4,
        num_attention_heads=2,
        attention_head_dim=8,
        num_layers=4,
        pooled_projection_dim=16,
        text_embed_dim=16,
        time_embed_dim=4,
        max_sequence_length=8,
    )
    scheduler = FlowMatchEulerDiscreteScheduler(invert_sigmas=True)
    mask = torch.ones(1, 8, dtype=torch.bool)
    pipe = MochiPipeline(scheduler=scheduler, vae=None, text_encoder=None, tokenizer=None, transformer=transformer)
    return runner(pipe, **texts(num_frames=7, prompt_attention_mask=mask, negative_prompt_attention_mask=mask))


def skyreels(kind: Any) -> tuple[Any, Run]:
    scheduler = UniPCMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=8.0)
    absent: dict[str, Any] = dict.fromkeys(("tokenizer", "text_encoder", "vae"))
    pipe = kind(**absent, transformer=SkyReelsV2Transformer3DModel(**LIKE_WAN), scheduler=scheduler)
    return runner(pipe, prompt=None, **texts(num_frames=13))


def helios() -> tuple[Any, Run]:
    """Two chunks of two latent frames, each with its own denoising loop."""
    transformer = HeliosTransformer3DModel(**LIKE_WAN, rope_dim=(4, 4, 4))
    config = Part(
        scale_factor_temporal=4, scale_factor_spatial=8, z_dim=4, latents_mean=[0.0] * 4, latents_std=[1.0] * 4
    )
    vae = Part(config=config, dtype=torch.float32, decode=lambda latents, **_: (latents,))
    pipe = HeliosPipeline(
        tokenizer=None, text_encoder=None, vae=vae, scheduler=HeliosScheduler(stages=1), transformer=transformer
    )
    return runner(pipe, **texts(num_frames=10, history_sizes=[4, 2, 1], num_latent_frames_per_chunk=2))


def hunyuan15(guider: Any) -> tuple[Any, Run]:
    """One named call for each prediction that the guider asks for."""
    transformer = HunyuanVideo15Transformer3DModel(
        **(HEADS | {"in_channels": 9}),
        num_layers=4,
        num_refiner_layers=1,
        patch_size=1,
        text_embed_dim=16,
        text_embed_2_dim=8,
        image_embed_dim=8,
        rope_axes_dim=(4, 4, 4),
        task_type="t2v",
        target_size=16,
    )
    config = Part(latent_channels=4, scaling_factor=1.0)
    absent: dict[str, Any] = dict.fromkeys(("text_encoder", "text_encoder_2", "tokenizer", "tokenizer_2"))
    vae = Part(config=config, temporal_compression_ratio=4, spatial_compression_ratio=16)
    scheduler = FlowMatchEulerDiscreteScheduler(shift=7.0)
    pipe = HunyuanVideo15Pipeline(**absent, vae=vae, transformer=transformer, scheduler=scheduler, guider=guider)
    arguments: dict[str, Any] = texts()
    for index, prefix in enumerate(("", "negative_")):
        arguments[f"{prefix}prompt_embeds_2"] = embedding(4, 8, seed=2 + index)
        arguments[f"{prefix}prompt_embeds_mask"] = torch.ones(1, 8)
        arguments[f"{prefix}prompt_embeds_mask_2"] = torch.ones(1, 4)
    return runner(pipe, **arguments)


def kandinsky5() -> tuple[Any, Run]:
    """Two unnamed calls, channels last; the transformer returns an output class."""
    transformer = Kandinsky5Transformer3DModel(
        in_visual_dim=4,
        out_visual_dim=4,
        in_text_dim=16,
        in_text_dim2=8,
        time_dim=16,
        model_dim=16,
        ff_dim=32,
        num_text_blocks=1,
        num_visual_blocks=4,
        axes_dims=(2, 2, 4),
    )
    absent: dict[str, Any] = dict.fromkeys(("text_encoder", "text_encoder_2", "tokenizer", "tokenizer_2", "vae"))
    scheduler = FlowMatchEulerDiscreteScheduler(shift=7.0)
    pipe = Kandinsky5T2VPipeline(**absent, transformer=transformer, scheduler=scheduler)
    arguments: dict[str, Any] = {"height": 32, "width": 32, "num_frames": 5}
    for index, prefix in enumerate(("", "negative_")):
        arguments[f"{prefix}prompt_embeds_qwen"] = embedding(8, 16, seed=index)
        arguments[f"{prefix}prompt_embeds_clip"] = embedding(8, seed=index)
        arguments[f"{prefix}prompt_cu_seqlens"] = torch.tensor([0, 8], dtype=torch.int32)
    return runner(pipe, **arguments)


PIPELINES: dict[str, tuple[Callable[[], tuple[Any, Run]], list[str]]] = {
    "Mochi": (mochi, ["cond_uncond"]),
    "SkyReels-V2": (lambda: skyreels(SkyReelsV2Pipeline), ["cond", "uncond"]),
    "SkyReels-V2 forcing": (lambda: skyreels(SkyReelsV2DiffusionForcingPipeline), ["cond", "uncond"]),
    "HunyuanVideo 1.5": (lambda: hunyuan15(ClassifierFreeGuidance(3.0)), ["pred_cond", "pred_uncond"]),
    "Kandinsky 5": (kandinsky5, ["call 0", "call 1"]),
}


@pytest.mark.parametrize("name", PIPELINES)
def test_every_branch_of_a_step_follows_one_decision(name: str) -> None:
    torch.manual_seed(0)
    build, branches = PIPELINES[name]
    pipe, run = build()
    plain = run()
    with galaxydit.accelerate(pipe, config=NEVER):
        assert torch.equal(run(), plain)
    with galaxydit.accelerate(pipe, config=OFTEN) as acceleration:
        reused = run()
        assert torch.equal(run(), reused)
    assert len(acceleration.reports) == 2
    calls = acceleration.report.calls
    assert [(call.step, call.branch, call.reused) for call in calls] == [
        (step, branch, step in REUSED) for step in range(12) for branch in branches
    ]
    sigmas = [call.sigma for call in calls[:: len(branches)]]
    assert sigmas == sorted(sigmas, reverse=True)
    assert 0 <= sigmas[-1] < sigmas[0] <= 1.0 + 1e-5
    assert not acceleration.report.notes
    assert not torch.equal(reused, plain)
    assert torch.equal(run(), plain)


@pytest.mark.parametrize("stop", [1.0, 0.7], ids=["always", "in mid-run"])
def test_a_guider_of_a_modular_pipeline_may_ask_for_three_predictions(tiny_wan: Any, stop: float) -> None:
    """Skip-layer guidance hooks the blocks for its third call; it leaves out the first steps."""
    guider = SkipLayerGuidance(
        3.0,
        skip_layer_config=LayerSkipConfig(indices=[1], fqn="blocks"),
        skip_layer_guidance_start=1.0 - stop,
        skip_layer_guidance_stop=stop,
    )
    pipe = WanBlocks().init_pipeline()
    parts = {
        name: getattr(tiny_wan.pipe, name) for name in ("transformer", "vae", "text_encoder", "tokenizer", "scheduler")
    }
    pipe.update_components(**parts, guider=guider)

    def run() -> Tensor:
        return pipe(
            prompt="a red ball",
            height=32,
            width=32,
            num_frames=5,
            num_inference_steps=12,
            max_sequence_length=16,
            generator=torch.Generator().manual_seed(0),
            output="latents",
        )

    plain = run()
    with galaxydit.accelerate(pipe, config=NEVER):
        assert torch.equal(run(), plain)
    with galaxydit.accelerate(pipe, config=OFTEN) as acceleration:
        reused = run()
        assert torch.equal(run(), reused)
    assert len(acceleration.reports) == 2
    calls = acceleration.report.calls
    for branch in ("call 0", "call 1"):
        assert [call.step for call in calls if call.branch == branch and call.reused] == REUSED
    third = [(call.step, call.reused) for call in calls if call.branch == "call 2"]
    if stop == 1.0:
        assert third == [(step, step in REUSED) for step in range(1, 12)]
    else:
        assert third == [(4, False), (5, False), (6, True), (7, True)], "its first call has nothing to reuse"
    assert not acceleration.report.notes
    assert torch.equal(run(), plain)


def chunked(name: str) -> tuple[Any, Run]:
    torch.manual_seed(0)
    if name == "Helios":
        return helios()
    pipe, run = skyreels(SkyReelsV2DiffusionForcingPipeline)
    return pipe, lambda **changes: run(**{"num_frames": 21, "base_num_frames": 13, "overlap_history": 5} | changes)


@pytest.mark.parametrize("name", ["Helios", "SkyReels-V2 forcing"])
def test_each_chunk_of_a_long_video_is_a_generation_of_its_own(name: str) -> None:
    pipe, run = chunked(name)
    plain = run()
    with galaxydit.accelerate(pipe, config=NEVER):
        assert torch.equal(run(), plain)
    with galaxydit.accelerate(pipe, config=OFTEN) as acceleration:
        reused = run()
    assert not torch.equal(reused, plain)
    first, second = acceleration.reports
    for report in (first, second):
        assert [call.step for call in report.calls[::2]] == list(range(12))
        assert [call.step for call in report.calls[::2] if call.reused] == REUSED
        assert report.calls[0].distance is None
        assert not report.notes

    def forget(pipe: Any, step: int, timestep: Any, tensors: dict[str, Any]) -> dict[str, Any]:
        if step == 11:
            apart._session.close()
        return tensors

    with galaxydit.accelerate(pipe, config=OFTEN) as apart:
        assert torch.equal(run(callback_on_step_end=forget), reused), "nothing of a chunk reaches the next"


def test_frames_at_different_noise_levels_are_computed_in_full_with_the_reason() -> None:
    torch.manual_seed(0)
    pipe, run = skyreels(SkyReelsV2DiffusionForcingPipeline)
    asynchronous = {"ar_step": 2, "causal_block_size": 1, "base_num_frames": 13}
    plain = run(**asynchronous)
    with (
        pytest.warns(galaxydit.FullComputeWarning, match="frames at different noise levels have none"),
        galaxydit.accelerate(pipe, config=OFTEN) as acceleration,
    ):
        assert torch.equal(run(**asynchronous), plain)
    assert not any(call.reused for report in acceleration.reports for call in report.calls)
