"""Images and videos as inputs, by the lines of a prompts file."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import (
    AutoencoderKLWan,
    WanImageToVideoPipeline,
    WanPipeline,
    WanTransformer3DModel,
    WanVACEPipeline,
    WanVACETransformer3DModel,
    WanVideoToVideoPipeline,
)
from PIL import Image, features

from galaxydit.errors import DataWarning, GalaxyDiTError
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.inputs import hash_files, merge_inputs, parse_inputs, read_inputs
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
        '{"prompt": "a cat", "image": ["red.png"]}',
        '{"prompt": "a cat", "reference_images": "red.png"}',
        '{"prompt": "a cat", "reference_images": []}',
        '{"prompt": "a cat", "video": "missing.mp4"}',
        '{"prompt": "a cat", "image": "nul\\u0000.png"}',
        '{"prompt": ' * 100_000,
    ],
    ids=lambda line: line[:50],
)
def test_other_objects_and_missing_files_are_refused(line: str) -> None:
    with pytest.raises(GalaxyDiTError, match="is not allowed: expected"):
        read_inputs(line)


def test_a_blank_prompt_needs_an_image_or_a_video(folder: Path) -> None:
    for blank in ("", " \n", '{"prompt": ""}', '{"prompt": "  "}'):
        with pytest.raises(GalaxyDiTError, match="a text that is not blank; say what the video shows"):
            parse_inputs(blank)
        with pytest.raises(GalaxyDiTError, match="a text that is not blank"):
            merge_inputs(blank, {})
        merged = merge_inputs(blank, {"image": str(folder / "red.png")})
        assert parse_inputs(merged)["image"] == str(folder / "red.png")


@pytest.mark.parametrize(("name", "kind"), [("last_image", "an image"), ("video", "a video")])
def test_a_damaged_file_is_refused_by_the_name_of_its_argument(name: str, kind: str, tmp_path: Path) -> None:
    (tmp_path / "damaged").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    line = json.dumps({"prompt": "a cat", name: str(tmp_path / "damaged")})
    with pytest.raises(GalaxyDiTError, match=rf"{name}='.*damaged.* is not allowed: expected {kind} that can be read"):
        read_inputs(line)


@pytest.mark.skipif(not features.check("avif"), reason="this Pillow reads no AVIF")
def test_a_damaged_avif_whose_decoder_raises_an_error_of_its_own_is_refused(tmp_path: Path) -> None:
    Image.new("RGB", (16, 16)).save(tmp_path / "a.avif")
    content = (tmp_path / "a.avif").read_bytes()
    (tmp_path / "a.avif").write_bytes(content[:-40] + bytes(40))
    with pytest.raises(
        GalaxyDiTError, match=r"image='.*a.avif' is not allowed: expected an image that can be read \(Fail"
    ):
        read_inputs(json.dumps({"prompt": "a cat", "image": str(tmp_path / "a.avif")}))


def test_the_files_of_a_prompt_are_hashed_by_their_paths(folder: Path) -> None:
    red, blue, clip = (str(folder / name) for name in ("red.png", "blue.png", "clip.mp4"))
    line = json.dumps({"prompt": "a cat", "image": red, "video": clip, "reference_images": [blue, red]})
    assert hash_files(line) == {path: hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in (red, clip, blue)}
    assert hash_files("a cat, red.png") == hash_files('{"prompt": "red.png"}') == {}


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_photo_is_turned_as_its_exif_says(orientation: int, tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    corner = Image.new("RGB", (32, 16))
    corner.paste((255, 255, 255), (0, 0, 8, 8))
    corner.save(tmp_path / "a.png", exif=exif)
    shown = read_inputs(json.dumps({"prompt": "x", "image": str(tmp_path / "a.png")}))["image"]
    # Where row 0 and column 0 are shown: EXIF 2.32, tag 0x0112.
    rows, columns = {1: "tl", 2: "tr", 3: "br", 4: "bl", 5: "lt", 6: "rt", 7: "rb", 8: "lb"}[orientation]
    assert shown.size == ((32, 16) if orientation < 5 else (16, 32))
    x, y = (0 if "l" in rows + columns else -1), (0 if "t" in rows + columns else -1)
    pixels = np.asarray(shown)[..., 0]
    assert pixels[y, x] == 255
    assert pixels[-1 - y, -1 - x] == pixels[y, -1 - x] == pixels[-1 - y, x] == 0


def transparent(mode: str) -> tuple[Image.Image, dict[str, int]]:
    """The left half black, the right half transparent, in one of the modes that can say so."""
    image = Image.new("L", (8, 8))
    image.paste(200, (4, 0, 8, 8))
    if mode in ("P", "L", "RGB"):
        return image.convert(mode), {"transparency": (200,) * 3 if mode == "RGB" else 200}
    image = image.convert(mode)
    image.putalpha(image.convert("L").point(lambda level: 255 - level * 255 // 200))
    return image, {}


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "L", "RGB"])
@pytest.mark.parametrize("key", ["image", "last_image", "reference_images"])
def test_transparent_parts_become_white_with_a_warning(mode: str, key: str, tmp_path: Path) -> None:
    image, options = transparent(mode)
    image.save(path := tmp_path / "a.png", **options)
    line = json.dumps({"prompt": "x", key: [str(path)] if key == "reference_images" else str(path)})
    with pytest.warns(DataWarning, match=rf"galaxydit: {key}='.*a.png' has transparent parts, which become white"):
        shown = read_inputs(line)[key]
    shown = shown[0] if isinstance(shown, list) else shown
    assert [shown.getpixel((x, 0)) for x in (0, 7)] == [(0, 0, 0), (255, 255, 255)]


@pytest.mark.filterwarnings("error")
def test_an_opaque_image_with_an_alpha_channel_is_read_quietly(tmp_path: Path) -> None:
    Image.new("RGBA", (8, 8), (10, 20, 30, 255)).save(tmp_path / "a.png")
    image = read_inputs(json.dumps({"prompt": "x", "image": str(tmp_path / "a.png")}))["image"]
    assert image.getpixel((0, 0)) == (10, 20, 30)


@pytest.mark.parametrize("name", ["a.png", "a.tif", "a.pgm"])
def test_16_bit_grey_keeps_its_levels(name: str, tmp_path: Path) -> None:
    levels = np.linspace(0, 65535, 256).astype(np.uint16).reshape(16, 16)
    Image.fromarray(levels).save(tmp_path / name)
    image = read_inputs(json.dumps({"prompt": "x", "image": str(tmp_path / name)}))["image"]
    np.testing.assert_array_equal(np.asarray(image), np.arange(256).reshape(16, 16, 1).repeat(3, axis=2))


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_levels_of_more_than_16_bits_are_refused(dtype: type, tmp_path: Path) -> None:
    Image.fromarray(np.full((4, 4), 2**20, dtype)).save(tmp_path / "a.tif")
    with pytest.raises(GalaxyDiTError, match="its levels have more than 16 bits"):
        read_inputs(json.dumps({"prompt": "x", "image": str(tmp_path / "a.tif")}))


def test_an_image_reaches_the_pipeline(
    image_to_video: WanImageToVideoPipeline, tiny_settings: GenerationSettings, folder: Path
) -> None:
    lines = [json.dumps({"prompt": "a ball", "image": str(folder / f"{name}.png")}) for name in ("red", "blue")]
    red, blue = (generate(image_to_video, line, tiny_settings, seed=0, decode=False).latents for line in lines)
    assert not torch.equal(red, blue)
    with pytest.raises(ValueError, match="WanImageToVideoPipeline needs an image: pass --image"):
        generate(image_to_video, "a ball", tiny_settings, seed=0)


def test_vace_takes_a_video_its_mask_and_reference_images(
    tiny_wan_pipeline: WanPipeline, tiny_settings: GenerationSettings, folder: Path
) -> None:
    torch.manual_seed(0)
    mask_channels = 8 * 8  # of the pixels of a latent
    config = dict(tiny_wan_pipeline.transformer.config) | {
        "vace_layers": [0],
        "vace_in_channels": 2 * 16 + mask_channels,
    }
    parts = {name: getattr(tiny_wan_pipeline, name) for name in ("tokenizer", "text_encoder", "scheduler")}
    # Wan2.1's own kind of VAE, from whose downsamplings VACE counts the pixels of a latent.
    vae = AutoencoderKLWan(
        base_dim=3, z_dim=16, dim_mult=[1] * 4, num_res_blocks=1, temperal_downsample=[False, True, True]
    )
    pipe = WanVACEPipeline(**parts, vae=vae.eval(), transformer=WanVACETransformer3DModel.from_config(config).eval())
    pipe.set_progress_bar_config(disable=True)
    red, blue, clip = (str(folder / name) for name in ("red.png", "blue.png", "clip.mp4"))
    made = {}
    for name, given in {
        "text": {},
        "video": {"video": clip, "mask": clip},
        "one": {"reference_images": [red]},
        "other": {"reference_images": [blue]},
        "two": {"reference_images": [red, blue]},
        "all": {"video": clip, "mask": clip, "reference_images": [red, blue]},
    }.items():
        line = json.dumps({"prompt": "a ball", **given})
        made[name] = generate(pipe, line, tiny_settings, seed=0, decode=False).latents
        frames = made[name].shape[2] - len(given.get("reference_images", ()))
        assert frames == 2, "each reference is a frame before those of the video"
    assert not torch.equal(made["text"], made["video"])
    assert not torch.equal(made["one"], made["other"])
    assert not torch.equal(made["two"], made["all"])


def test_a_video_sets_the_number_of_frames(
    tiny_wan_pipeline: WanPipeline, tiny_settings: GenerationSettings, folder: Path
) -> None:
    parts = {name: getattr(tiny_wan_pipeline, name) for name in ("tokenizer", "text_encoder", "scheduler")}
    vae = AutoencoderKLWan(
        base_dim=3, z_dim=16, dim_mult=[1] * 4, num_res_blocks=1, temperal_downsample=[False, True, True]
    )
    pipe = WanVideoToVideoPipeline(**parts, vae=vae.eval(), transformer=tiny_wan_pipeline.transformer)
    pipe.set_progress_bar_config(disable=True)
    line = json.dumps({"prompt": "a ball", "video": str(folder / "clip.mp4")})
    settings = replace(tiny_settings, num_frames=81)
    assert generate(pipe, line, settings, seed=0, decode=False).latents.shape[2] == 2
    with pytest.raises(GalaxyDiTError, match=r"guidance_scale_2=3.0 is not allowed: expected None, because Wan.* does"):
        generate(pipe, line, replace(settings, guidance_scale_2=3.0), seed=0)


@pytest.mark.parametrize(
    "wrong",
    [
        ["a ball", "a cat"],
        None,
        b"a ball",
        {"prompt": ["a ball", "a cat"]},
        {"prompt": "a ball", "num_frames": 9},
        {"prompt": "a ball", "video": []},
        {"prompt": "a ball", "image": "red.png"},
    ],
)
def test_inputs_that_are_read_are_one_prompt_with_images(
    wrong: Any, tiny_wan_pipeline: WanPipeline, tiny_settings: GenerationSettings
) -> None:
    with pytest.raises(GalaxyDiTError, match="is not allowed: expected"):
        generate(tiny_wan_pipeline, wrong, tiny_settings, seed=0)


def test_an_image_for_a_text_to_video_pipeline_is_refused(
    tiny_wan_pipeline: WanPipeline, tiny_settings: GenerationSettings, folder: Path
) -> None:
    line = json.dumps({"prompt": "a ball", "image": str(folder / "red.png")})
    with pytest.raises(ValueError, match="WanPipeline does not take image"):
        generate(tiny_wan_pipeline, line, tiny_settings, seed=0)
