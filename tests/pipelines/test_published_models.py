from collections.abc import Callable
from dataclasses import asdict

import pytest
import torch
from diffusers import FlowMatchEulerDiscreteScheduler, WanPipeline

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
