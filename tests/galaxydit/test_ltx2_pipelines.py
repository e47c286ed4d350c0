"""LTX-2's pipelines of real parts: video and audio from one transformer, guidance in up to three calls a step."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import (
    AutoencoderKLLTX2Audio,
    AutoencoderKLLTX2Video,
    FlowMatchEulerDiscreteScheduler,
    LTX2ConditionPipeline,
    LTX2HDRPipeline,
    LTX2ImageToVideoPipeline,
    LTX2InContextPipeline,
    LTX2Pipeline,
    LTX2VideoTransformer3DModel,
)
from diffusers.pipelines.ltx2 import (
    LTX2HDRReferenceCondition,
    LTX2ReferenceCondition,
    LTX2TextConnectors,
    LTX2VideoCondition,
)
from diffusers.pipelines.ltx2.vocoder import LTX2Vocoder
from PIL import Image
from torch import Tensor

import galaxydit
from galaxydit import GalaxyDiTConfig, Threshold
from galaxydit.pipelines.published_models import CHECKPOINTS
from galaxydit.pipelines.sound import sound_of

OFTEN = GalaxyDiTConfig(Threshold(50.0), max_consecutive=2)
REUSED = (3, 4, 6, 7, 9, 10)
BLOCKS = 2
BRANCHES = ["cond_uncond", "uncond_stg", "uncond_modality"]
IMAGE = Image.new("RGB", (32, 32), (200, 30, 30))
KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "text": (LTX2Pipeline, {}),
    "image": (LTX2ImageToVideoPipeline, {"image": IMAGE}),
    "condition": (LTX2ConditionPipeline, {"conditions": LTX2VideoCondition(IMAGE, index=4)}),
    "in context": (LTX2InContextPipeline, {"reference_conditions": LTX2ReferenceCondition([IMAGE] * 5)}),
    "HDR": (
        LTX2HDRPipeline,
        {"reference_conditions": LTX2HDRReferenceCondition([IMAGE] * 5), "guidance_scale": 3.0}
        | {"stg_scale": 1.0, "modality_scale": 3.0},
    ),
}
UNGUIDED = {"guidance_scale": 1.0, "audio_guidance_scale": 1.0}
NO_STG = {"stg_scale": 0.0, "audio_stg_scale": 0.0}
NO_ISOLATION = {"modality_scale": 1.0, "audio_modality_scale": 1.0}
GUIDANCE: dict[str, tuple[dict[str, float], list[str]]] = {
    "all": ({}, BRANCHES),
    "classifier-free": (NO_STG | NO_ISOLATION, BRANCHES[:1]),
    "perturbed": (UNGUIDED | NO_ISOLATION, BRANCHES[:2]),
    "none": (UNGUIDED | NO_STG | NO_ISOLATION, BRANCHES[:1]),
}


_GATED = {"gated_attn": True, "cross_attn_mod": True, "audio_gated_attn": True, "audio_cross_attn_mod": True}
_GATED |= {"use_prompt_embeddings": False, "perturbed_attn": True}
VERSIONS: dict[str, dict[str, Any]] = {
    "ltx-2": {},
    "ltx-2.3": _GATED,
    "ltx-2.5": _GATED | {"ff_bias": False, "use_keyframes_abs_pos_embedding": True},
}
"""What diffusers' converter sets for each version of the transformer."""


def parts(version: str = "ltx-2") -> dict[str, Any]:
    """Everything but text encoder and tokenizer, whose outputs the call is given."""
    rope = {"rope_double_precision": False, "rope_type": "split"}
    stream = {"num_attention_heads": 2, "attention_head_dim": 8, "num_layers": 1, "num_learnable_registers": None}
    connectors = {f"{name}_connector_{key}": value for name in ("video", "audio") for key, value in stream.items()}
    vae = AutoencoderKLLTX2Video(
        latent_channels=4,
        block_out_channels=(8,),
        decoder_block_out_channels=(8,),
        layers_per_block=(1,),
        decoder_layers_per_block=(1, 1),
        spatio_temporal_scaling=(True,),
        decoder_spatio_temporal_scaling=(True,),
        decoder_inject_noise=(False, False),
        downsample_type=("spatial",),
        upsample_residual=(False,),
        upsample_factor=(1,),
        patch_size=4,
    )
    audio_vae = AutoencoderKLLTX2Audio(
        base_channels=4, ch_mult=(1,), num_res_blocks=1, resolution=32, latent_channels=2, mel_bins=8
    )
    vocoder = LTX2Vocoder(
        in_channels=audio_vae.config.output_channels * audio_vae.config.mel_bins,
        hidden_channels=8,
        upsample_kernel_sizes=[4],
        upsample_factors=[2],
        resnet_kernel_sizes=[3],
        resnet_dilations=[[1]],
    )
    transformer = LTX2VideoTransformer3DModel(
        in_channels=4,
        out_channels=4,
        num_attention_heads=2,
        attention_head_dim=8,
        cross_attention_dim=16,
        audio_in_channels=4,
        audio_out_channels=4,
        audio_num_attention_heads=2,
        audio_attention_head_dim=4,
        audio_cross_attention_dim=8,
        num_layers=BLOCKS,
        caption_channels=16,
        **rope,
        **VERSIONS[version],
    )
    if version != "ltx-2":  # each stream has a projection of the text, as wide as itself
        connectors |= {"audio_connector_attention_head_dim": 4, "per_modality_projections": True}
        connectors |= {"video_hidden_dim": 16, "audio_hidden_dim": 8, "proj_bias": True}
    return {
        "scheduler": FlowMatchEulerDiscreteScheduler(),
        "vae": vae,
        "audio_vae": audio_vae,
        "text_encoder": None,
        "tokenizer": None,
        "connectors": LTX2TextConnectors(16, 3, connector_rope_base_seq_len=32, **connectors, **rope),
        "transformer": transformer,
        "vocoder": vocoder,
    }


def build(kind: Any, version: str = "ltx-2", **arguments: Any) -> tuple[Any, Callable[..., list[Tensor]]]:
    """The pipeline of a published version, and a function that makes video and audio (HDR no audio) in 12 steps, always
    from the same seed."""
    torch.manual_seed(0)
    pipe = kind(**parts(version))
    pipe.set_progress_bar_config(disable=True)
    generator = torch.Generator().manual_seed(1)
    arguments |= {f"{sign}prompt_embeds": torch.randn(1, 8, 48, generator=generator) for sign in ("", "negative_")}
    arguments |= {f"{sign}prompt_attention_mask": torch.ones(1, 8, dtype=torch.long) for sign in ("", "negative_")}
    arguments |= {"height": 32, "width": 32, "num_frames": 5, "spatio_temporal_guidance_blocks": [1]}

    def run(**changes: Any) -> list[Tensor]:
        settings = {"num_inference_steps": 12, "output_type": "pt"} | arguments | changes
        outputs = pipe(generator=torch.Generator().manual_seed(0), **settings, return_dict=False)
        return [output for output in outputs if output is not None]

    return pipe, run


def equal(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(map(torch.equal, one, other))


def test_the_sound_is_understood() -> None:
    pipe, run = build(LTX2Pipeline)
    _, audio = run(num_inference_steps=1)
    sound = sound_of(pipe, SimpleNamespace(audio=audio))
    assert sound.rate == pipe.vocoder.config.output_sampling_rate
    np.testing.assert_allclose(sound.samples, audio[0].float().clamp(-1, 1))


@pytest.mark.parametrize(
    ("kind", "guidance", "version"),
    [
        *((kind, "all", "ltx-2") for kind in KINDS),
        *(("text", guidance, "ltx-2") for guidance in GUIDANCE if guidance != "all"),
        *(("text", "all", version) for version in VERSIONS if version != "ltx-2"),
    ],
)
def test_video_and_audio_follow_one_decision_in_all_branches(kind: str, guidance: str, version: str) -> None:
    scales, branches = GUIDANCE[guidance]
    pipeline, inputs = KINDS[kind]
    pipe, run = build(pipeline, version, **inputs, **scales)
    plain = run()
    (description,) = galaxydit.describe(pipe)
    assert (description.family, description.blocks, description.branches) == ("LTX-2", BLOCKS, "concatenated batch")

    is_first = kind == "text" and guidance == "all"  # the other cases share the transformer with one of these
    if is_first:
        with pytest.warns(galaxydit.NoEffectWarning):
            unchanged = galaxydit.accelerate(pipe, threshold=0)
        with unchanged:
            assert equal(run(), plain)
        assert unchanged.report.compute_fraction == 1.0

    ran: list[int] = []
    blocks = pipe.transformer.transformer_blocks
    handles = [block.register_forward_pre_hook(lambda *_: ran.append(1)) for block in blocks]
    with galaxydit.accelerate(pipe, config=OFTEN) as acceleration:
        reused = run()
        report, counted = acceleration.report, len(ran)
        if is_first:
            assert equal(run(), reused), "the second generation starts afresh"
            assert len(acceleration.reports) == 2
    for handle in handles:
        handle.remove()
    assert [(call.step, call.branch, call.reused) for call in report.calls] == [
        (step, branch, step in REUSED) for step in range(12) for branch in branches
    ]
    assert counted == sum(call.blocks_run for call in report.calls) == 6 * len(branches) * BLOCKS + len(REUSED)
    assert not report.notes
    assert not any(map(torch.equal, reused, plain)), "video and audio are both predicted"
    assert all(output.isfinite().all() for output in reused)

    registries = [module._diffusers_hook for module in pipe.transformer.modules() if hasattr(module, "_diffusers_hook")]
    assert not [hook for registry in registries for hook in registry.hooks]
    if is_first:
        assert equal(run(), plain)


@pytest.mark.parametrize("version", VERSIONS)
def test_nothing_is_warned_of_at_the_authors_settings(version: str, recwarn: pytest.WarningsRecorder) -> None:
    settings = CHECKPOINTS[version].settings
    pipe, run = build(LTX2Pipeline, version)
    with galaxydit.accelerate(pipe) as acceleration:
        run(num_inference_steps=settings.steps, guidance_scale=settings.guidance_scale)
    assert not [str(warning.message) for warning in recwarn if "galaxydit" in str(warning.message)]
    assert 1 / acceleration.report.compute_fraction == pytest.approx(2.0, rel=0.05)


@pytest.mark.parametrize("kind", KINDS)
def test_a_speedup_is_met(kind: str) -> None:
    pipeline, inputs = KINDS[kind]
    pipe, run = build(pipeline, **inputs)
    with galaxydit.accelerate(pipe, speedup=2.0) as acceleration:
        run(num_inference_steps=10)
    assert acceleration.report.compute_fraction == 0.5


def test_the_branches_of_audio_guidance_alone_share_one_decision() -> None:
    pipe, run = build(LTX2Pipeline, guidance_scale=1.0, audio_guidance_scale=7.0, **NO_STG, **NO_ISOLATION)
    config = GalaxyDiTConfig(Threshold(0.04), proxy="block_residual")
    with galaxydit.accelerate(pipe, config=config) as acceleration:
        run()
    assert {call.sample for call in acceleration.report.calls} == {0}
