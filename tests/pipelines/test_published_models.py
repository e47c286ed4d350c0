from collections.abc import Callable
from dataclasses import asdict
from inspect import signature

import pytest
import torch
from diffusers import (
    FlowMatchEulerDiscreteScheduler,
    HunyuanVideo15Pipeline,
    LTX2Pipeline,
    SanaVideoPipeline,
    WanAnimatePipeline,
    WanPipeline,
)
from diffusers.modular_pipelines.minimax_h3.modular_pipeline import (
    MINIMAX_H3_FPS,
    align_num_frames,
    resolve_canvas_size,
)
from diffusers.pipelines.hunyuan_video1_5.image_processor import HunyuanVideo15ImageProcessor
from diffusers.pipelines.sana_video.pipeline_sana_video import ASPECT_RATIO_720_BIN

from galaxydit.errors import GalaxyDiTError
from galaxydit.pipelines import published_models as models
from galaxydit.pipelines.published_models import recommended_settings
from galaxydit.pipelines.settings import GenerationSettings

# MiniMax-H3 is distilled, and the guider of HunyuanVideo 1.5 belongs to the checkpoint.
WITHOUT_SCALE = ("minimax-h3", "hunyuanvideo-1.5")


@pytest.fixture
def wan_with(tiny_transformer: Callable) -> Callable[..., WanPipeline]:
    """Builds a WanPipeline of so many blocks; only its shape matters here."""

    def build(blocks: int, **options: object) -> WanPipeline:
        parts = {"tokenizer": None, "text_encoder": None, "vae": None, "scheduler": None}
        return WanPipeline(**parts, transformer=tiny_transformer(blocks), **options)

    return build


@pytest.mark.parametrize(
    ("blocks", "options", "expected"),
    [
        (10, {}, models.WAN_TINY),
        (30, {}, models.WAN_21_1_3B),
        (40, {}, models.WAN_21_14B),
        (40, {"boundary_ratio": 0.875}, models.WAN_22_A14B),
        (30, {"expand_timesteps": True}, models.WAN_22_TI2V_5B),
    ],
)
def test_each_wan_model_gets_its_makers_settings(wan_with: Callable, blocks: int, options: dict, expected: object):
    assert recommended_settings(wan_with(blocks, **options)) == expected


@pytest.mark.parametrize("name", models.CHECKPOINTS)
def test_a_published_model_is_known_by_its_hub_id(wan_with: Callable, name: str):
    pipe, checkpoint = wan_with(3), models.CHECKPOINTS[name]
    pipe.register_to_config(_name_or_path=checkpoint.hub_id)
    assert recommended_settings(pipe) == checkpoint.settings
    assert all(isinstance(getattr(torch, dtype), torch.dtype) for dtype in checkpoint.dtypes.values())
    known = {field for field, value in asdict(checkpoint.settings).items() if value is not None}
    assert {"height", "width", "num_frames", "steps", "fps"} <= known
    assert ("guidance_scale" in known) == (not name.startswith(WITHOUT_SCALE))


def test_negative_prompts_are_those_of_diffusers():
    from diffusers.pipelines.ltx2.utils import DEFAULT_NEGATIVE_PROMPT
    from diffusers.pipelines.sana_video.pipeline_sana_video import EXAMPLE_DOC_STRING

    assert models.LTX_23_NEGATIVE == DEFAULT_NEGATIVE_PROMPT
    assert f'negative_prompt = "{models.SANA_NEGATIVE}"' in EXAMPLE_DOC_STRING


@pytest.mark.parametrize(
    ("name", "pipeline"),
    [
        ("ltx-2.3", LTX2Pipeline),
        ("ltx-2.5", LTX2Pipeline),
        ("sana-video-2b-480p", SanaVideoPipeline),
        ("wan2.2-animate-14b", WanAnimatePipeline),
        ("hunyuanvideo-1.5-t2v-480p", HunyuanVideo15Pipeline),
    ],
)
def test_settings_are_the_defaults_of_diffusers(name: str, pipeline: type):
    defaults = {each.name: each.default for each in signature(pipeline.__call__).parameters.values()}
    settings = models.CHECKPOINTS[name].settings
    shown = {"height": settings.height, "width": settings.width, "num_inference_steps": settings.steps}
    shown |= {"num_frames": settings.num_frames, "frames": settings.num_frames, "frame_rate": settings.fps}
    shown |= {"segment_frame_length": settings.num_frames, "guidance_scale": settings.guidance_scale}
    known = {field: value for field, value in shown.items() if defaults.get(field) is not None}
    assert known == {field: defaults[field] for field in known}
    assert len(known) >= 2


def test_sizes_are_those_that_diffusers_computes():
    def size_of(name: str) -> tuple[int | None, int | None]:
        return models.CHECKPOINTS[name].settings.height, models.CHECKPOINTS[name].settings.width

    assert size_of("minimax-h3") == resolve_canvas_size(
        16, 9, canvas_multiple=32, short_edge=768, max_pixels=768 * 1344
    )
    assert align_num_frames(5 * MINIMAX_H3_FPS, 17, 5) == models.MINIMAX_H3.num_frames, "the shortest, 5 s"
    processor = HunyuanVideo15ImageProcessor(vae_scale_factor=16)
    for name, target in (("480p", 640), ("720p", 960)):
        assert size_of(f"hunyuanvideo-1.5-t2v-{name}") == processor.calculate_default_height_width(9, 16, target)
    assert [*size_of("sana-video-2b-720p")] in [*ASPECT_RATIO_720_BIN.values()]


def test_a_scheduler_without_a_flow_shift_gets_none(wan_with: Callable):
    pipe = wan_with(30)
    assert recommended_settings(pipe).flow_shift is not None
    pipe.scheduler = FlowMatchEulerDiscreteScheduler()
    assert recommended_settings(pipe).flow_shift is None


def test_an_unknown_model_gets_the_defaults_of_its_pipeline(wan_with: Callable):
    assert recommended_settings(wan_with(3)) == GenerationSettings(480, 832, 81, steps=50, guidance_scale=5.0)


@pytest.mark.parametrize(
    "bad",
    [
        {"height": 0},
        {"width": 64.0},
        {"num_frames": -1},
        {"steps": 0},
        {"guidance_scale": -1.0},
        {"guidance_scale_2": float("nan")},
        {"flow_shift": 0.0},
        {"fps": 0},
        {"fps": "8"},
        {"steps": True},
        {"guidance_scale": float("inf")},
    ],
)
def test_a_setting_out_of_range_is_named_with_its_value(bad: dict):
    ((name, value),) = bad.items()
    with pytest.raises(GalaxyDiTError, match=f"{name}={value!r} is not allowed: expected"):
        GenerationSettings(**bad)
