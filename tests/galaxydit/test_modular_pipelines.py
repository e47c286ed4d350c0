"""Modular pipelines, whose guiders ask for one prediction or several in a step."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import (
    ClassifierFreeGuidance,
    FlowMatchEulerDiscreteScheduler,
    HeliosScheduler,
    MiniMaxH3Scheduler,
    PerturbedAttentionGuidance,
    SkipLayerGuidance,
)
from diffusers.hooks import LayerSkipConfig
from diffusers.hooks._helpers import AttentionProcessorRegistry
from diffusers.models.transformers.transformer_wan import WanAttnProcessor, WanAttnProcessor2_0
from diffusers.modular_pipelines import WanBlocks
from diffusers.modular_pipelines.helios import HeliosAutoBlocks, HeliosPyramidAutoBlocks
from diffusers.modular_pipelines.hunyuan_video1_5 import HunyuanVideo15AutoBlocks
from diffusers.modular_pipelines.ltx import LTXBlocks
from diffusers.modular_pipelines.minimax_h3.modular_blocks_minimax_h3 import MiniMaxH3AutoDenoiseStep
from diffusers.modular_pipelines.minimax_h3.references import MiniMaxH3ImageReference
from diffusers.modular_pipelines.modular_pipeline import ModularPipelineBlocks, SequentialPipelineBlocks
from diffusers.modular_pipelines.modular_pipeline_utils import InputParam
from diffusers.modular_pipelines.wan import Wan22Blocks
from PIL import Image
from tiny_parts import OFTEN, REUSED, SIZE, build_transformer, embedding, flow, masks, texts, unipc
from tiny_table import GLYPHS, HUNYUAN_15, LTX, PREDICTIONS, UNNAMED, WAN
from torch import Tensor

import galaxydit
from galaxydit import FixedSteps, GalaxyDiTConfig, GalaxyDiTError
from tests.galaxydit.stream_errors import measure

MINIMAX = {"num_attention_heads": 2, "attention_head_dim": 16, "hidden_size": 24, "num_layers": 4, "ffn_dim": 32}
MINIMAX |= {"num_refiner_layers": 1, "in_channels": 24, "audio_in_channels": 32, "text_dim": 16, "freq_dim": 8}
MINIMAX |= {"time_embed_hidden_dim": 24, "time_embed_dim": 16, "rope_freq_dim": 2}
NEVER = GalaxyDiTConfig(FixedSteps(tuple(range(60))))


def build(blocks: Any, parts: dict[str, Any], **arguments: Any) -> tuple[Any, Callable[[], Tensor]]:
    """The pipeline of these blocks without text encoder and decoder, and a function that runs 12 steps of it."""
    for name in ("text_encoder", "decode"):
        blocks.sub_blocks.pop(name)
    pipe = blocks.init_pipeline()
    pipe.update_components(**{"guider": ClassifierFreeGuidance(3.0)} | parts)
    arguments = {"num_inference_steps": 12} | texts() | SIZE | arguments
    return pipe, lambda: pipe(generator=torch.Generator().manual_seed(0), output="latents", **arguments)


def ltx() -> tuple[Any, Callable[[], Tensor]]:
    transformer = build_transformer("LTXVideoTransformer3DModel", LTX)
    parts = {"transformer": transformer, "scheduler": FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True)}
    return build(LTXBlocks(), parts, **masks() | {"height": 128, "width": 128, "num_frames": 17})


def hunyuan_15() -> tuple[Any, Callable[[], Tensor]]:
    sizes = HUNYUAN_15 | {"task_type": "t2v", "in_channels": 65, "out_channels": 32}
    transformer = build_transformer("HunyuanVideo15Transformer3DModel", sizes)
    return build(HunyuanVideo15AutoBlocks(), {"transformer": transformer, "scheduler": flow(shift=7.0)()}, **GLYPHS)


def helios(blocks: Any = HeliosAutoBlocks, scheduler: Any = None, **more: Any) -> Any:
    transformer = build_transformer("HeliosTransformer3DModel", WAN | {"rope_dim": (4, 4, 4)})
    history = {"history_sizes": [4, 2, 1], "num_latent_frames_per_chunk": 2}
    return build(
        blocks(), {"transformer": transformer, "scheduler": scheduler or HeliosScheduler(stages=1)}, **history | more
    )


def helios_pyramid() -> tuple[Any, Callable[[], Tensor]]:
    """Two stages, each with a denoising loop of its own."""
    stages = {"pyramid_num_inference_steps_list": [12, 12], "height": 64, "width": 64}
    return helios(HeliosPyramidAutoBlocks, HeliosScheduler(stages=2, stage_range=[0, 0.5, 1], gamma=0.3), **stages)


def wan_22() -> tuple[Any, Callable[[], Tensor]]:
    """Two transformers; the second one takes over at step 7, with nothing to reuse."""
    names, channels = ("transformer", "transformer_2"), {"in_channels": 16, "out_channels": 16}
    parts = {name: build_transformer("WanTransformer3DModel", WAN | channels) for name in names}
    parts |= {"scheduler": unipc(flow_shift=8.0)(), "guider_2": ClassifierFreeGuidance(2.0)}
    return build(Wan22Blocks(), parts)


PIPELINES: dict[str, tuple[Callable[[], Any], list[str], list[int]]] = {
    "LTXModularPipeline": (ltx, PREDICTIONS, REUSED),
    "HunyuanVideo15ModularPipeline": (hunyuan_15, PREDICTIONS, REUSED),
    "HeliosModularPipeline": (helios, PREDICTIONS, REUSED),
    "HeliosPyramidModularPipeline": (helios_pyramid, PREDICTIONS, REUSED),
    "Wan22ModularPipeline": (wan_22, UNNAMED, [3, 4, 6, 8, 9]),
}


@pytest.mark.parametrize("name", PIPELINES)
def test_every_step_of_a_modular_pipeline_is_computed_or_reused_as_decided(name: str) -> None:
    make, branches, reused = PIPELINES[name]
    pipe, run = make()
    plain = run()
    with galaxydit.accelerate(pipe, config=NEVER):
        assert torch.equal(run(), plain)
    with galaxydit.accelerate(pipe, config=OFTEN) as acceleration:
        assert not torch.equal(run(), plain)
    for report in acceleration.reports:
        assert [(call.step, call.branch, call.reused) for call in report.calls] == [
            (step, branch, step in reused) for step in range(12) for branch in branches
        ]
        assert not report.notes
    assert torch.equal(run(), plain)


def minimax_h3(names: tuple[str, ...], steps: int = 13, seed: int = 0) -> tuple[Any, Callable[[], Tensor]]:
    """The denoising with an image as a reference, which runs `transformer_ref`."""
    blocks = {"setup": References(), "denoise": MiniMaxH3AutoDenoiseStep()}
    pipe = SequentialPipelineBlocks.from_blocks_dict(blocks).init_pipeline()
    pipe.set_progress_bar_config(disable=True)
    transformers = {name: build_transformer("MiniMaxH3Transformer3DModel", MINIMAX) for name in names}
    pipe.update_components(scheduler=MiniMaxH3Scheduler(12.0), audio_scheduler=MiniMaxH3Scheduler(3.0), **transformers)
    reference = MiniMaxH3ImageReference(Image.new("RGB", (64, 64)))
    arguments: dict[str, Any] = {
        "prompt_embeds": embedding(8, 16),
        "text_token_tags": torch.full((8,), pipe.text_tag),
        "references": [reference],
        "normalized_references": [reference],
        "condition_latents": [embedding(24, 1, 4, 4)],
        "audio_condition_latents": [],
        "height": 64,
        "width": 64,
        "num_frames": 124,
        "num_inference_steps": steps,
    }
    return pipe, lambda: pipe(**arguments, generator=torch.Generator().manual_seed(seed)).values["latents"]


class References(ModularPipelineBlocks):
    """Stands in for the steps that encode the references."""

    model_name = "minimax-h3"
    inputs = (InputParam("references"),)

    def __call__(self, components: Any, state: Any) -> Any:
        return components, state


@pytest.mark.parametrize("names", [("transformer", "transformer_ref"), ("transformer_ref",)])
def test_a_transformer_under_another_name_is_accelerated(names: tuple[str, ...]) -> None:
    pipe, run = minimax_h3(names)
    plain = run()
    with galaxydit.accelerate(pipe, config=OFTEN) as acceleration:
        assert not torch.equal(run(), plain)
    report = acceleration.report
    assert {call.transformer for call in report.calls} == {"transformer_ref"}
    assert report.reused_steps == len(REUSED)
    assert torch.equal(run(), plain)


def test_the_sound_of_minimax_h3_is_predicted_by_its_own_noise_levels() -> None:
    engine, outside = measure(seeds=1, speedup=2.0).T
    assert len(engine) > 20
    np.testing.assert_array_equal(engine, outside)


def test_a_residual_of_picture_and_sound_is_repeated_with_a_note() -> None:
    pipe, run = minimax_h3(("transformer_ref",))
    with (
        galaxydit.accelerate(pipe, config=replace(OFTEN, reuse="residual")) as acceleration,
        pytest.warns(galaxydit.ExtrapolationWarning, match="noise levels of their own"),
    ):
        run()
    assert acceleration.report.reused_steps > 0


def test_a_modular_pipeline_without_its_models_names_the_cure() -> None:
    with pytest.raises(GalaxyDiTError, match=r"has no transformer.*load_components\(\) first"):
        galaxydit.accelerate(WanBlocks().init_pipeline())


def skip_layer(**steps: float) -> Any:
    return SkipLayerGuidance(3.0, skip_layer_config=LayerSkipConfig(indices=[1], fqn="blocks"), **steps)


def perturb_attention(**steps: float) -> Any:
    layers = LayerSkipConfig(indices=[1], fqn="blocks", skip_attention=False, skip_ff=False, skip_attention_scores=True)
    steps = {name.replace("skip_layer", "perturbed"): value for name, value in steps.items()}
    return PerturbedAttentionGuidance(3.0, perturbed_guidance_config=layers, **steps)


@pytest.mark.parametrize("guidance", [skip_layer, perturb_attention])
@pytest.mark.parametrize("stop", [1.0, 0.7], ids=["always", "in mid-run"])
def test_a_guider_of_a_modular_pipeline_may_ask_for_three_predictions(
    tiny_wan: Any, guidance: Any, stop: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such guidance hooks the blocks for its third call; it leaves out the first steps."""
    # Diffusers 0.42 registers Wan's attention under its former name alone.
    registered = AttentionProcessorRegistry.get(WanAttnProcessor2_0)
    monkeypatch.setitem(AttentionProcessorRegistry._registry, WanAttnProcessor, registered)
    guider = guidance(skip_layer_guidance_start=1.0 - stop, skip_layer_guidance_stop=stop)
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
        expected = REUSED if stop == 1.0 else REUSED[:-2]  # when the third ends, the next full steps are without it
        assert [call.step for call in calls if call.branch == branch and call.reused] == expected
    third = [(call.step, call.reused) for call in calls if call.branch == "call 2"]
    if stop == 1.0:
        assert third == [(step, step in REUSED) for step in range(1, 12)]
    else:
        assert third == [(4, False), (5, False), (6, True), (7, True)], "its first call has nothing to reuse"
    assert not acceleration.report.notes
    assert torch.equal(run(), plain)
