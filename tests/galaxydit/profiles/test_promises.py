"""A PSNR is promised for what was verified alone; whatever differs is said, and makes it unknown."""

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import (
    AutoencoderKLWan,
    FlowMatchEulerDiscreteScheduler,
    UniPCMultistepScheduler,
    WanPipeline,
    WanVideoToVideoPipeline,
)
from PIL import Image
from profile_parts import PROMPT, SETTINGS

import galaxydit
from galaxydit.errors import ProfileWarning
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.profiles.fingerprint import model_of, plain_values
from galaxydit.profiles.generation_settings import settings_of
from galaxydit.profiles.schema import Profile
from galaxydit.schedulers import sigmas_of
from tests.galaxydit.conftest import build_hunyuan
from tests.galaxydit.profiles.test_verified import measured

CALL = {"prompt": PROMPT, "height": 32, "width": 32, "num_frames": 5, "guidance_scale": 3.0, "max_sequence_length": 16}


def report_of(pipe: Any, profile: Profile, **call: Any) -> galaxydit.Report:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ProfileWarning)
        with galaxydit.accelerate(pipe, speedup=2.0, profile=profile) as acceleration:
            pipe(**{"num_inference_steps": SETTINGS.steps, "output_type": "latent"} | call)
    return acceleration.report


def is_promised(report: galaxydit.Report) -> bool:
    assert report.goal is not None
    return report.goal.verified is not None


def test_the_settings_that_were_verified_are_promised(tiny_wan_pipeline: WanPipeline) -> None:
    report = report_of(tiny_wan_pipeline, measured(tiny_wan_pipeline), **CALL)
    assert is_promised(report)
    assert report.notes == ()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("solver_order", 1),
        ("solver_type", "bh1"),
        ("thresholding", True),
        ("final_sigmas_type", "sigma_min"),
        ("disable_corrector", [0, 1]),
        ("lower_order_final", False),
    ],
)
def test_another_option_of_the_solver_is_named_and_promises_nothing(
    tiny_wan_pipeline: WanPipeline, option: str, value: Any
) -> None:
    profile = measured(tiny_wan_pipeline)
    changed = UniPCMultistepScheduler.from_config(tiny_wan_pipeline.scheduler.config, **{option: value})
    tiny_wan_pipeline.scheduler = changed
    report = report_of(tiny_wan_pipeline, profile, **CALL)
    assert not is_promised(report)
    assert f"scheduler.{option}=" in " ".join(report.notes)
    assert "unknown, because the profile was verified under other conditions" in str(report).splitlines()[0]


def test_an_option_that_the_calibration_had_is_promised(tiny_wan_pipeline: WanPipeline) -> None:
    pipe, profile = tiny_wan_pipeline, measured(tiny_wan_pipeline)
    pipe.scheduler = UniPCMultistepScheduler.from_config(pipe.scheduler.config, solver_order=1)
    known = settings_of(pipe, pipe.scheduler, [pipe.transformer])
    profile = replace(profile, conditions=replace(profile.conditions, settings=known))
    assert is_promised(report_of(pipe, profile, **CALL))


def test_video_to_video_from_the_middle_of_the_schedule_is_not_promised(tiny_wan_pipeline: WanPipeline) -> None:
    profile, parts = measured(tiny_wan_pipeline), ("tokenizer", "text_encoder", "transformer", "scheduler")
    vae = AutoencoderKLWan(base_dim=4, z_dim=16, dim_mult=[1, 2, 2, 2], num_res_blocks=1, attn_scales=[])
    pipe = WanVideoToVideoPipeline(**{name: getattr(tiny_wan_pipeline, name) for name in parts}, vae=vae)
    pipe.set_progress_bar_config(disable=True)
    video = [Image.new("RGB", (32, 32), (200, 30 * index, 30)) for index in range(5)]
    call = {name: value for name, value in CALL.items() if name != "num_frames"}
    report = report_of(pipe, profile, video=video, strength=0.6, **call)
    assert report.steps_run < report.steps
    assert not is_promised(report)
    assert "video to video" in " ".join(report.notes)


def test_guidance_that_changes_during_the_generation_is_not_promised(tiny_wan_pipeline: WanPipeline) -> None:
    def weaken(pipe: Any, step: int, timestep: Any, tensors: dict[str, Any]) -> dict[str, Any]:
        pipe._guidance_scale = 3.0 if step < 10 else 2.0
        return tensors

    report = report_of(tiny_wan_pipeline, measured(tiny_wan_pipeline), callback_on_step_end=weaken, **CALL)
    assert not is_promised(report)
    assert "the guidance scale changed during the generation" in str(report).splitlines()[0]


@pytest.mark.parametrize(("true_cfg_scale", "promised"), [(1.0, True), (4.0, False)])
def test_true_guidance_beside_an_embedded_scale_is_not_promised(
    tiny_wan_pipeline: WanPipeline, true_cfg_scale: float, promised: bool
) -> None:
    torch.manual_seed(0)
    tiny, steps = build_hunyuan(), SETTINGS.steps or 0
    tiny.pipe.set_progress_bar_config(disable=True)
    tiny.pipe(**tiny.arguments | {"num_inference_steps": steps, "output_type": "latent", "true_cfg_scale": 1.0})
    profile = measured(tiny_wan_pipeline)
    conditions = replace(
        profile.conditions,
        scheduler=FlowMatchEulerDiscreteScheduler.__name__,
        sigmas=sigmas_of(tiny.pipe.scheduler, steps) or (),
        guidance_scale=6.0,
        latent_shape=(4, 3, 4, 4),
    )
    profile = replace(profile, model=model_of(tiny.pipe.transformer), conditions=conditions)
    report = report_of(tiny.pipe, profile, **tiny.arguments | {"true_cfg_scale": true_cfg_scale})
    assert is_promised(report) is promised
    assert ("true_cfg_scale" in " ".join(report.notes)) is not promised


def scale_of_adapters(pipe: Any) -> None:
    peft = pytest.importorskip("peft")
    pipe.transformer.add_adapter(peft.LoraConfig(r=2, target_modules=["to_q"], lora_alpha=2), "style")


CHANGES: dict[str, tuple[Callable[[Any], None], Callable[[Any], None]]] = {
    "scale of adapter style": (scale_of_adapters, lambda pipe: pipe.transformer.set_adapters(["style"], [0.5])),
    "attention backend": (lambda pipe: None, lambda pipe: pipe.transformer.set_attention_backend("_native_math")),
    "quantised weights": (lambda pipe: None, lambda pipe: quantise(pipe.transformer)),
}


def quantise(transformer: Any) -> None:
    """A weight of 8 bits that no forward pass reads."""
    transformer.register_parameter("unread", torch.nn.Parameter(torch.zeros(2, dtype=torch.int8), requires_grad=False))


@pytest.mark.usefixtures("native_attention")
@pytest.mark.parametrize("name", CHANGES)
def test_what_changes_in_the_transformer_is_named_and_promises_nothing(
    tiny_wan_pipeline: WanPipeline, name: str
) -> None:
    prepare, change = CHANGES[name]
    prepare(tiny_wan_pipeline)
    profile = measured(tiny_wan_pipeline)
    assert is_promised(report_of(tiny_wan_pipeline, profile, **CALL))
    with galaxydit.accelerate(tiny_wan_pipeline, speedup=2.0, profile=profile) as acceleration:
        change(tiny_wan_pipeline)
        with pytest.warns(ProfileWarning, match=f"{name}="):
            tiny_wan_pipeline(num_inference_steps=SETTINGS.steps, output_type="latent", **CALL)
    assert not is_promised(acceleration.report)


def add_style(transformer: Any) -> None:
    peft = pytest.importorskip("peft")
    transformer.add_adapter(peft.LoraConfig(r=2, target_modules=["to_q"]), "style")


CHANGES_OF_SECOND: dict[str, Callable[[Any], None]] = {
    "transformer_2 attention backend=": lambda transformer: transformer.set_attention_backend("_native_math"),
    "transformer_2 quantised weights=": quantise,
    r"adapters \['style'\] of the transformer_2": add_style,
}


@pytest.mark.usefixtures("native_attention")
@pytest.mark.parametrize("text", CHANGES_OF_SECOND)
def test_what_changes_in_the_second_transformer_is_named_and_promises_nothing(
    tiny_wan_pipeline: WanPipeline, tiny_transformer: Callable[[int], Any], text: str
) -> None:
    parts = tiny_wan_pipeline.components | {"transformer_2": tiny_transformer(3)}
    pipe = WanPipeline(**parts, boundary_ratio=0.9)
    pipe.set_progress_bar_config(disable=True)
    profile = measured(pipe)
    conditions = replace(profile.conditions, boundary=0.9, guidance_scale_2=3.0)
    profile = replace(profile, second_model=model_of(pipe.transformer_2), conditions=conditions)
    assert is_promised(report_of(pipe, profile, **CALL))
    with galaxydit.accelerate(pipe, speedup=2.0, profile=profile) as acceleration:
        CHANGES_OF_SECOND[text](pipe.transformer_2)
        with pytest.warns(ProfileWarning, match=text):
            pipe(num_inference_steps=SETTINGS.steps, output_type="latent", **CALL)
    assert not is_promised(acceleration.report)


def test_arguments_that_a_pipeline_keeps_are_compared_with_their_defaults(tiny_pipeline: Any) -> None:
    tiny = tiny_pipeline("LTX")
    tiny.run(guidance_rescale=0.7, guidance_scale=3.0)
    known = settings_of(tiny.pipe, tiny.pipe.scheduler, [tiny.pipe.transformer])
    assert known["guidance_rescale"] == 0.7
    assert known["pipeline"] == "LTXPipeline"
    assert "guidance_scale" not in known  # it has a field of its own


def test_a_bare_transformer_does_not_tell_its_guidance_so_nothing_is_promised(tiny_wan_pipeline: WanPipeline) -> None:
    profile, transformer = measured(tiny_wan_pipeline), tiny_wan_pipeline.transformer
    with galaxydit.accelerate(
        transformer, speedup=2.0, profile=profile, scheduler=tiny_wan_pipeline.scheduler
    ) as acceleration:
        tiny_wan_pipeline(num_inference_steps=GenerationSettings(steps=20).steps, output_type="latent", **CALL)
    assert not is_promised(acceleration.report)
    assert "guidance_scale of this generation is not told" in " ".join(acceleration.report.notes)


def test_numbers_of_numpy_count_among_the_settings() -> None:
    assert plain_values({"guidance_rescale": np.float32(0.5), "order": np.int64(2)}) == {
        "guidance_rescale": 0.5,
        "order": 2,
    }
