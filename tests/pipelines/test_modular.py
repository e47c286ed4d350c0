"""Modular pipelines are loaded, and make videos, as ordinary ones do."""

import json
import re
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import numpy as np
import pytest
import torch
from diffusers import (
    AutoencoderKLMiniMaxH3,
    AutoencoderKLMiniMaxH3Audio,
    ClassifierFreeGuidance,
    MiniMaxH3Scheduler,
    MiniMaxH3Transformer3DModel,
)
from diffusers.modular_pipelines.minimax_h3.modular_blocks_minimax_h3 import (
    MiniMaxH3AutoDenoiseStep,
    MiniMaxH3DecodeStep,
)
from diffusers.modular_pipelines.modular_pipeline import ModularPipelineBlocks, SequentialPipelineBlocks
from diffusers.modular_pipelines.modular_pipeline_utils import InputParam
from huggingface_hub.errors import RemoteEntryNotFoundError

import galaxydit
from galaxydit.errors import GalaxyDiTError
from galaxydit.pipelines import loading
from galaxydit.pipelines.conditions import conditions_of
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.loading import load_pipeline
from galaxydit.pipelines.model_names import INDEX, MODULAR_INDEX, absent_checkpoint
from galaxydit.pipelines.modular import hide_progress, parameters_of
from galaxydit.pipelines.published_models import CHECKPOINTS, recommended_settings
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.sizes import prepare_inputs, small_settings

SETTINGS = GenerationSettings(32, 32, 5, steps=12, fps=8.0)


@pytest.fixture
def folder(tiny_modular_folder: Path) -> Path:
    return tiny_modular_folder


def load(folder: Path, **options: Any) -> Any:
    pipe = load_pipeline(folder, dtype=torch.float32, device="cpu", **options)
    hide_progress(pipe)
    return pipe


def call(pipe: Any) -> dict[str, Any]:
    """The video by diffusers' own call."""
    size = {"height": 32, "width": 32, "num_frames": 5, "num_inference_steps": 12}
    inputs = {"prompt": "a red ball", "generator": torch.Generator().manual_seed(0), "output_type": "np"}
    videos: dict[str, Any] = pipe(**inputs, **size, output=["videos", "latents"])
    return videos


@pytest.mark.parametrize("offload", ["none", "model", "group", "sequential"])
def test_a_modular_pipeline_in_a_folder_makes_the_video_of_diffusers(folder: Path, offload: str) -> None:
    pipe = load(folder, offload=offload)
    assert type(pipe).__name__ == "WanModularPipeline"
    expected = call(load(folder))
    steps: list[tuple[int, int]] = []
    video = generate(pipe, "a red ball", SETTINGS, 0, on_step=lambda *step: steps.append(step))
    np.testing.assert_array_equal(video.frames, expected["videos"][0])
    assert torch.equal(video.latents, expected["latents"])
    assert steps == [(step + 1, 12) for step in range(12)]
    assert 0 < video.denoise_seconds < video.end_to_end_seconds
    assert "step" not in vars(pipe.scheduler), "the scheduler is as it was"


def test_no_progress_is_shown_once_it_is_hidden(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pipe = load(folder)
    capfd.readouterr()
    generate(pipe, "a red ball", SETTINGS, 0)
    assert capfd.readouterr().err == ""


def test_without_the_decoder_a_modular_pipeline_returns_the_same_latents(folder: Path) -> None:
    pipe = load(folder)
    video = generate(pipe, "a red ball", SETTINGS, 0, decode=False)
    assert torch.equal(video.latents, generate(pipe, "a red ball", SETTINGS, 0).latents)
    assert video.frames.size == 0


def test_a_modular_pipeline_is_accelerated_and_reports(folder: Path) -> None:
    pipe = load(folder)
    plain = generate(pipe, "a red ball", SETTINGS, 0)
    for decode in (True, False):
        with galaxydit.accelerate(pipe, speedup=2.0) as acceleration:
            fast = generate(pipe, "a red ball", SETTINGS, 0, decode=decode)
        assert acceleration.report.compute_fraction == pytest.approx(0.5)
        assert acceleration.report.denoise_seconds == pytest.approx(fast.denoise_seconds, rel=0.5)
        assert not torch.equal(fast.latents, plain.latents)
    assert torch.equal(generate(pipe, "a red ball", SETTINGS, 0).latents, plain.latents)


def test_inputs_of_blocks_are_the_parameters_of_the_call(folder: Path) -> None:
    pipe = load(folder)
    taken = parameters_of(pipe)
    assert {"prompt", "height", "width", "num_frames", "num_inference_steps", "generator"} <= taken.keys()
    assert recommended_settings(pipe).steps == 50, "the default of the blocks"
    with pytest.raises(GalaxyDiTError, match=r"guidance_scale=3.0 is not allowed: expected None, because WanModular"):
        generate(pipe, "a red ball", GenerationSettings(32, 32, 5, steps=2, guidance_scale=3.0), 0)


def test_the_guider_of_a_modular_pipeline_is_among_its_conditions(folder: Path) -> None:
    pipe = load(folder)
    before = conditions_of(pipe, SETTINGS)
    pipe.guider = ClassifierFreeGuidance(2.0)
    after = conditions_of(pipe, SETTINGS)
    assert json.dumps(before)
    assert {name for name in before if before[name] != after[name]} == {"configs"}


@pytest.mark.parametrize("part", ["vae", "text_encoder"])
def test_a_part_that_is_missing_or_damaged_is_named(folder: Path, part: str) -> None:
    weights = next((folder / part).glob("*.safetensors"))
    weights.write_bytes(b"damaged")
    with pytest.raises(GalaxyDiTError, match=f"expected a folder {part} that diffusers can load"):
        load(folder)
    (folder / part).rename(folder / "elsewhere")
    with pytest.raises(GalaxyDiTError, match=f"expected a folder {part} beside {MODULAR_INDEX}"):
        load(folder)


def test_another_source_that_the_index_names_is_not_asked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = folder / MODULAR_INDEX
    index.write_text(index.read_text().replace(str(folder), "someone/else"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert load(folder).transformer.config.num_layers == 3


@pytest.mark.parametrize("content", ["[" * 1000, "{}", '{"_class_name": "NoSuchPipeline"}', "\xff"])
def test_a_damaged_index_is_refused(folder: Path, content: str) -> None:
    (folder / MODULAR_INDEX).write_text(content, encoding="latin-1")
    with pytest.raises(GalaxyDiTError, match="model="):
        load(folder)


@pytest.mark.parametrize("place", ["../vae", ".."])
def test_a_part_outside_the_folder_is_refused(folder: Path, place: str) -> None:
    index = folder / MODULAR_INDEX
    index.write_text(index.read_text().replace('"subfolder": "vae"', f'"subfolder": "{place}"'))
    with pytest.raises(GalaxyDiTError, match=re.escape(f"vae='{place}' is not allowed: expected the name of")):
        load(folder)


def test_code_of_a_folder_is_not_run(folder: Path) -> None:
    (folder / "modular_config.json").write_text('{"auto_map": {"ModularPipelineBlocks": "block.Blocks"}}')
    (folder / "block.py").write_text("raise SystemExit('run')")
    with pytest.raises(GalaxyDiTError, match="contains custom code"):
        load(folder)


def test_a_single_file_does_not_replace_the_transformer_of_a_modular_pipeline(folder: Path) -> None:
    file = next((folder / "transformer").glob("*.safetensors"))
    with pytest.raises(GalaxyDiTError, match=r"base=.* is not allowed: expected no modular pipeline"):
        load_pipeline(file, base=folder)


def test_a_modular_pipeline_on_the_hub_is_fetched_without_code_and_unused_parts(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}

    def download(source: str, name: str, revision: str | None) -> str:
        if name == INDEX:
            raise RemoteEntryNotFoundError("no such file", response=NO_RESPONSE)
        return str(folder / name)

    def snapshot(source: str, **options: Any) -> str:
        asked.update(options, source=source)
        return str(folder)

    monkeypatch.setattr(loading, "hf_hub_download", download)
    monkeypatch.setattr(loading, "snapshot_download", snapshot)
    monkeypatch.setitem(loading.UNUSED_PARTS, "WanModularPipeline", ("guider_2",))
    assert type(load_pipeline("someone/modular", device="cpu")).__name__ == "WanModularPipeline"
    assert asked["source"] == "someone/modular"
    assert {MODULAR_INDEX, "transformer/*", "vae/*"} <= {*asked["allow_patterns"]}
    assert {"*.bin", "*.pt", "*.py"} <= {*asked["ignore_patterns"]}


NO_RESPONSE: Any = type("Response", (), {"headers": {}, "request": None, "status_code": 404, "text": ""})()


class Prompt(ModularPipelineBlocks):
    """Stands in for the text encoder of MiniMax-H3."""

    model_name = "minimax-h3"
    inputs = (InputParam("prompt"),)

    def __call__(self, components: Any, state: Any) -> Any:
        state.set("prompt_embeds", torch.randn(1, 8, 16, generator=torch.Generator().manual_seed(1)))
        state.set("text_token_tags", torch.full((8,), components.text_tag))
        return components, state


def minimax_h3() -> Any:
    """The denoising and decoding of MiniMax-H3; its shortest video has 124 frames."""
    blocks = {"text_encoder": Prompt(), "denoise": MiniMaxH3AutoDenoiseStep(), "decode": MiniMaxH3DecodeStep()}
    pipe = SequentialPipelineBlocks.from_blocks_dict(blocks).init_pipeline()
    pipe.set_progress_bar_config(disable=True)
    torch.manual_seed(0)
    sizes = {"num_attention_heads": 2, "attention_head_dim": 16, "hidden_size": 24, "num_layers": 4, "ffn_dim": 32}
    sizes |= {"num_refiner_layers": 1, "in_channels": 4, "audio_in_channels": 8, "text_dim": 16, "freq_dim": 8}
    sizes |= {"time_embed_hidden_dim": 24, "time_embed_dim": 16, "rope_freq_dim": 2}
    vae = AutoencoderKLMiniMaxH3(
        latent_channels=4,
        block_out_channels=(8, 8, 8, 8),
        layers_per_block=1,
        spatial_downsample_factors=(2, 2, 2, 2),
        temporal_downsample_factors=(1, 2, 2, 1),
        norm_num_groups=4,
        decoder_num_layers=1,
        decoder_num_attention_heads=2,
        decoder_attention_head_dim=8,
        decoder_ffn_mult=1,
        latents_mean=(0.0,) * 4,
        latents_std=(1.0,) * 4,
    )
    audio_vae = AutoencoderKLMiniMaxH3Audio(
        encoder_dim=4,
        encoder_rates=(2, 2),
        latent_dim=32,
        latent_channels=8,
        num_attention_heads=2,
        decoder_dim=16,
        decoder_rates=(2, 2),
        decoder_kernel_sizes=(4, 4),
        resblock_kernel_sizes=(3, 7),
        resblock_dilation_sizes=((1, 3), (1, 3)),
        latents_mean=[0.0] * 8,
        latents_std=[1.0] * 8,
    )
    pipe.update_components(
        transformer=MiniMaxH3Transformer3DModel(**sizes).eval(),
        vae=vae.eval(),
        audio_vae=audio_vae.eval(),
        scheduler=MiniMaxH3Scheduler(12.0),
        audio_scheduler=MiniMaxH3Scheduler(3.0),
    )
    return pipe


def test_minimax_h3_makes_picture_and_sound() -> None:
    pipe = minimax_h3()
    assert recommended_settings(pipe) == CHECKPOINTS["minimax-h3"].settings
    settings = GenerationSettings(32, 32, 124, steps=13, fps=24.0)
    plain = generate(pipe, "a dog barks", settings, 0)
    assert plain.frames.shape == (124, 32, 32, 3)
    assert plain.latents.shape == (1, 4, 37, 2, 2)
    assert plain.sound is not None
    assert (plain.sound.rate, len(plain.sound.samples)) == (32_000, 2), "stereo"
    with galaxydit.accelerate(pipe, speedup=2.0) as acceleration:
        fast = generate(pipe, "a dog barks", settings, 0)
    assert len(acceleration.report.calls) == 12, "the last noise level takes no call"
    assert acceleration.report.compute_fraction == pytest.approx(0.5, abs=0.05)
    assert not np.array_equal(fast.frames, plain.frames)
    assert not np.array_equal(fast.sound.samples, plain.sound.samples)


def test_the_size_of_minimax_h3_follows_an_image_and_its_length_stays() -> None:
    pipe = minimax_h3()
    settings = CHECKPOINTS["minimax-h3"].settings
    inputs, chosen = prepare_inputs(pipe, "a dog barks", settings, recommended_settings)
    assert (chosen.height, chosen.width, chosen.num_frames) == (768, 1344, 124)
    assert inputs == {"prompt": "a dog barks"}
    assert small_settings(pipe, settings).num_frames == 124, "it makes no video that is shorter"


def test_minimax_h3_is_known_without_its_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("galaxydit.pipelines.model_names.try_to_load_from_cache", lambda *_, **__: None)
    assert absent_checkpoint("minimax-h3") is CHECKPOINTS["minimax-h3"]
