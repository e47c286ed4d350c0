"""Images and videos as inputs, by the lines of a prompts file."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from diffusers import WanImageToVideoPipeline, WanPipeline, WanTransformer3DModel
from PIL import Image

from galaxydit.errors import GalaxyDiTError
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.inputs import read_inputs
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.video import load_video, save_video


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Holds red.png, blue.png and clip.mp4."""
    for name, colour in (("red", (200, 30, 30)), ("blue", (30, 30, 200))):
        Image.new("RGB", (32, 32), colour).save(tmp_path / f"{name}.png")
    save_video(np.linspace(0, 1, 5 * 32 * 32 * 3).reshape(5, 32, 32, 3), tmp_path / "clip.mp4", 8.0)
    return tmp_path


@pytest.fixture
def image_to_video(tiny_wan_pipeline: WanPipeline) -> WanImageToVideoPipeline:
    torch.manual_seed(0)
    settings = dict(tiny_wan_pipeline.transformer.config) | {"in_channels": 36}
    parts = {name: getattr(tiny_wan_pipeline, name) for name in ("tokenizer", "text_encoder", "vae", "scheduler")}
    pipe = WanImageToVideoPipeline(**parts, transformer=WanTransformer3DModel.from_config(settings).eval())
    pipe.set_progress_bar_config(disable=True)
    return pipe


def test_a_text_stays_a_text() -> None:
    assert read_inputs("a cat, {not} an object") == {"prompt": "a cat, {not} an object"}


def test_paths_become_images_and_videos(folder: Path) -> None:
    line = {"prompt": "a cat", "image": str(folder / "red.png"), "video": str(folder / "clip.mp4")}
    inputs = read_inputs(json.dumps(line))
    assert inputs["prompt"] == "a cat"
    assert inputs["image"].getpixel((0, 0)) == (200, 30, 30)
    assert np.array_equal(np.stack(list(map(np.asarray, inputs["video"]))), load_video(folder / "clip.mp4"))


@pytest.mark.parametrize(
    "line",
    [
        '{"prompt": "a cat"',
        '{"image": "red.png"}',
        '{"prompt": "a cat", "sound": "cat.wav"}',
        '{"prompt": "a cat", "image": 3}',
        '{"prompt": "a cat", "image": "missing.png"}',
        '{"prompt": "a cat", "video": "missing.mp4"}',
    ],
)
def test_other_objects_and_missing_files_are_refused(line: str) -> None:
    with pytest.raises(GalaxyDiTError, match="is not allowed: expected"):
        read_inputs(line)


def test_an_image_reaches_the_pipeline(
    image_to_video: WanImageToVideoPipeline, tiny_settings: GenerationSettings, folder: Path
) -> None:
    lines = [json.dumps({"prompt": "a ball", "image": str(folder / f"{name}.png")}) for name in ("red", "blue")]
    red, blue = (generate(image_to_video, line, tiny_settings, seed=0, decode=False).latents for line in lines)
    assert not torch.equal(red, blue)
    with pytest.raises(ValueError, match="WanImageToVideoPipeline needs an image: give the prompt as a JSON object"):
        generate(image_to_video, "a ball", tiny_settings, seed=0)


def test_an_image_for_a_text_to_video_pipeline_is_refused(
    tiny_wan_pipeline: WanPipeline, tiny_settings: GenerationSettings, folder: Path
) -> None:
    line = json.dumps({"prompt": "a ball", "image": str(folder / "red.png")})
    with pytest.raises(ValueError, match="WanPipeline does not take image"):
        generate(tiny_wan_pipeline, line, tiny_settings, seed=0)
