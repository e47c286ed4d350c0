"""The size of recordings: small, of the same aspect ratio, and one that the pipeline takes."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from diffusers import WanPipeline
from tiny_table import PIPELINES

from galaxydit.pipelines import sizes
from galaxydit.pipelines.published_models import WAN_21_1_3B, WAN_21_14B, WAN_TINY
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.sizes import small_settings


@pytest.mark.parametrize(
    ("settings", "temporal", "token", "small"),
    [
        (WAN_TINY, 2, 8, (48, 48, 5)),
        (WAN_21_1_3B, 4, 16, (256, 448, 13)),
        (WAN_21_14B, 4, 16, (256, 448, 13)),
        (GenerationSettings(480, 704, 161, steps=50), 8, 32, (480, 704, 25)),  # LTX: frames alone
        (GenerationSettings(480, 848, 85, steps=64), 6, 16, (256, 448, 19)),  # Mochi
    ],
)
def test_published_models_are_recorded_at_about_1800_tokens(
    settings: GenerationSettings,
    temporal: int,
    token: int,
    small: tuple[int, int, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sizes, "has_one_size", lambda pipe: False)
    monkeypatch.setattr(sizes, "modulus_of", lambda pipe: max(16, token))
    monkeypatch.setattr(sizes, "pixels_of_token", lambda pipe: token)
    monkeypatch.setattr(sizes, "plain_config", lambda transformer: {})
    monkeypatch.setattr(sizes, "transformers_of", lambda pipe: {"transformer": None})
    found = small_settings(SimpleNamespace(vae_scale_factor_temporal=temporal), settings)
    assert (found.height, found.width, found.num_frames) == small
    assert replace(found, height=settings.height, width=settings.width, num_frames=settings.num_frames) == settings


@pytest.mark.parametrize("name", ["Wan VACE", "CogVideoX image", "LTX condition", "EasyAnimate", "SANA-Video"])
def test_tiny_pipelines_take_the_small_size(name: str) -> None:
    pipe, _ = PIPELINES[name].build()
    settings = GenerationSettings(128, 192, 33, steps=4)
    small = small_settings(pipe, settings)
    assert small.height * small.width < 128 * 192 or small.num_frames < 33
    assert small.width / small.height == pytest.approx(1.5, rel=0.5)


def test_an_unknown_size_stays(tiny_wan_pipeline: WanPipeline) -> None:
    assert small_settings(tiny_wan_pipeline, GenerationSettings(steps=4)) == GenerationSettings(steps=4)
