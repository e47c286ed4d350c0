"""The size of a video that starts from an image or another video."""

import json
from collections.abc import Callable
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
from PIL import Image, ImageDraw

from galaxydit.commands.options import Sizes
from galaxydit.errors import DataWarning, GalaxyDiTError
from galaxydit.eval.jobs.job import Job
from galaxydit.eval.jobs.maker import load
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.published_models import CHECKPOINTS, recommended_settings
from galaxydit.pipelines.settings import MOST, GenerationSettings
from galaxydit.pipelines.sizes import fit_size
from galaxydit.pipelines.video import save_video

WIDE = GenerationSettings(64, 128, 5, steps=2, guidance_scale=1.0)
CONTROL = "control_hidden_states"
FREE = replace(WIDE, height=None, width=None)


def parts_of(pipe: WanPipeline) -> dict[str, Any]:
    return {name: getattr(pipe, name) for name in ("tokenizer", "text_encoder", "vae", "scheduler")}


def image_to_video(pipe: WanPipeline) -> WanImageToVideoPipeline:
    config = dict(pipe.transformer.config) | {"in_channels": 36}
    return WanImageToVideoPipeline(**parts_of(pipe), transformer=WanTransformer3DModel.from_config(config).eval())


def with_wans_vae(pipe: WanPipeline) -> dict[str, Any]:
    vae = AutoencoderKLWan(
        base_dim=3, z_dim=16, dim_mult=[1] * 4, num_res_blocks=1, temperal_downsample=[False, True, True]
    )
    return parts_of(pipe) | {"vae": vae.eval()}


def video_to_video(pipe: WanPipeline) -> WanVideoToVideoPipeline:
    return WanVideoToVideoPipeline(**with_wans_vae(pipe), transformer=pipe.transformer)


def vace(pipe: WanPipeline) -> WanVACEPipeline:
    config = dict(pipe.transformer.config) | {"vace_layers": [0], "vace_in_channels": 2 * 16 + 8 * 8}
    transformer = WanVACETransformer3DModel.from_config(config).eval()
    return WanVACEPipeline(**with_wans_vae(pipe), transformer=transformer)


Made = Callable[..., tuple[tuple[int, ...], GenerationSettings]]


@pytest.fixture
def made(tiny_wan_pipeline: WanPipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    """Makes a video from a photo and a clip of 48x96 pixels (width x height); gives its size and settings."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("galaxydit.pipelines.generate.own_settings", lambda _: WIDE)
    photo = Image.new("RGB", (48, 96))
    ImageDraw.Draw(photo).ellipse((8, 32, 40, 64), fill="white")
    photo.save("tall.png")
    photo.rotate(90, expand=True).save("wide.png")
    for name in ("tall", "wide"):
        save_video(np.stack([np.asarray(Image.open(f"{name}.png"))] * 5), f"{name}.mp4", WIDE.fps)
    torch.manual_seed(0)

    def make(build: Any, settings: GenerationSettings, **inputs: Any) -> tuple[tuple[int, ...], GenerationSettings]:
        pipe = build(tiny_wan_pipeline)
        pipe.set_progress_bar_config(disable=True)
        video = generate(pipe, json.dumps({"prompt": "a ball", **inputs}), settings, seed=0)
        return video.frames.shape[2:0:-1], video.settings

    return make


@pytest.mark.filterwarnings("error::galaxydit.DataWarning")
@pytest.mark.parametrize(
    ("build", "inputs"),
    [
        (image_to_video, {"image": "tall.png"}),
        (image_to_video, {"image": "tall.png", "last_image": "tall.png"}),
        (video_to_video, {"video": "tall.mp4"}),
        (vace, {"video": "tall.mp4", "mask": "tall.mp4", "reference_images": ["wide.png"]}),
    ],
)
def test_without_a_size_a_video_has_the_recommended_area_and_the_aspect_ratio_of_its_input(
    build: Any, inputs: dict[str, str], made: Made
) -> None:
    size, settings = made(build, FREE, **inputs)
    # sqrt(64 * 128 / 2) = 64 and 128: as high as the recommended size is wide.
    assert settings == replace(FREE, height=128, width=64)
    assert size == (64, 128)


def test_a_circle_stays_a_circle(tiny_wan_pipeline: WanPipeline, made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, encode = [], tiny_wan_pipeline.vae.encode
    monkeypatch.setattr(tiny_wan_pipeline.vae, "encode", lambda video: (seen.append(video), encode(video))[1])
    made(image_to_video, FREE, image="tall.png")
    rows, columns = (seen[0][0, 0, 0] > 0).nonzero(as_tuple=True)
    assert columns.max() - columns.min() == pytest.approx(rows.max() - rows.min(), abs=1)


@pytest.mark.parametrize("settings", [FREE, WIDE, replace(WIDE, height=32, width=32)])
def test_vace_sees_its_video_in_the_size_of_the_result(settings: GenerationSettings, made: Made) -> None:
    shapes: list[torch.Size] = []

    def watched(pipe: WanPipeline) -> WanVACEPipeline:
        built = vace(pipe)
        built.transformer.register_forward_pre_hook(
            lambda _, __, given: shapes.extend(given[name].shape[3:] for name in ("hidden_states", CONTROL)),
            with_kwargs=True,
        )
        return built

    made(watched, settings, video="tall.mp4", mask="tall.mp4")
    assert len(set(shapes)) == 1


@pytest.mark.parametrize("build", [video_to_video, vace])
def test_a_video_gives_the_number_of_frames_at_the_rate_of_the_model(build: Any, made: Made) -> None:
    save_video(np.zeros((32, 96, 48, 3)), "fast.mp4", 2 * WIDE.fps)
    with pytest.warns(DataWarning, match=r"32 frames in 1\.00 s .* is read as 17 frames in 1\.06 s"):
        _, settings = made(build, replace(FREE, num_frames=None), video="fast.mp4")
    assert settings.num_frames == 17


def test_a_mask_and_a_number_of_frames_must_fit_the_video(made: Made) -> None:
    save_video(np.zeros((9, 96, 48, 3)), "long.mp4", WIDE.fps)
    with pytest.raises(GalaxyDiTError, match=r"mask='long.mp4' .* 5 frames, as many as video='tall.mp4' has, .* 9"):
        made(vace, FREE, mask="long.mp4", video="tall.mp4")
    with pytest.raises(GalaxyDiTError, match="num_frames=9 is not allowed: expected at most 5, the frames of video="):
        made(vace, replace(FREE, num_frames=9), video="tall.mp4")
    Path("broken.mp4").write_bytes(Path("long.mp4").read_bytes()[:-500])
    with pytest.raises(GalaxyDiTError, match=r"video='broken.mp4' is not allowed: expected a video that can be read"):
        made(vace, FREE, video="broken.mp4")


def test_without_a_video_the_number_of_frames_is_the_recommended_one(made: Made) -> None:
    assert made(vace, replace(FREE, num_frames=None))[1].num_frames == WIDE.num_frames


@pytest.mark.filterwarnings("error::galaxydit.DataWarning")
def test_one_side_gives_the_other_and_a_text_gets_the_recommended_size(made: Made) -> None:
    assert made(image_to_video, replace(FREE, width=32), image="tall.png")[0] == (32, 64)
    assert made(image_to_video, replace(FREE, height=64), image="tall.png")[0] == (32, 64)
    assert made(vace, FREE)[0] == (128, 64)
    assert made(vace, FREE, reference_images=["tall.png"])[0] == (128, 64)


@pytest.mark.parametrize(
    ("build", "inputs", "settings", "name"),
    [
        (image_to_video, {"image": "tall.png"}, WIDE, "image"),
        (image_to_video, {"image": "tall.png", "last_image": "wide.png"}, FREE, "last_image"),
        (video_to_video, {"video": "tall.mp4"}, WIDE, "video"),
        (vace, {"video": "tall.mp4"}, WIDE, "video"),
        (vace, {"video": "wide.mp4", "mask": "tall.mp4"}, WIDE, "mask"),
    ],
)
def test_an_input_that_is_stretched_is_warned_of(
    build: Any, inputs: dict[str, str], settings: GenerationSettings, name: str, made: Made
) -> None:
    with pytest.warns(DataWarning, match=rf"galaxydit: {name} of \d+x\d+ pixels is stretched to \d+x\d+; crop it"):
        made(build, settings, **inputs)


@pytest.mark.filterwarnings("error::galaxydit.DataWarning")
@pytest.mark.parametrize("size", [(1280, 720), (832, 480), (720, 1280), (1000, 1000), (4032, 3024), (480, 848)])
def test_photos_of_any_shape_get_the_size_of_diffusers_example(
    size: tuple[int, int], tiny_wan_pipeline: WanPipeline
) -> None:
    pipe, recommended = image_to_video(tiny_wan_pipeline), CHECKPOINTS["wan2.1-i2v-14b-480p"].settings
    fitted = fit_size(pipe, {"image": Image.new("RGB", size)}, FREE, recommended)
    max_area, aspect_ratio, mod_value = 480 * 832, size[1] / size[0], 16  # the example of WanImageToVideoPipeline
    height = round(np.sqrt(max_area * aspect_ratio)) // mod_value * mod_value
    width = round(np.sqrt(max_area / aspect_ratio)) // mod_value * mod_value
    assert (fitted.height, fitted.width) == (height, width)


def test_a_model_of_one_size_keeps_it(tiny_wan_pipeline: WanPipeline) -> None:
    pipe = image_to_video(tiny_wan_pipeline)
    pipe.transformer.register_to_config(use_learned_positional_embeddings=True)  # as CogVideoX-5b-I2V has them
    with pytest.warns(DataWarning, match="image of 48x96 pixels is stretched to 128x64"):
        assert fit_size(pipe, {"image": Image.new("RGB", (48, 96))}, FREE, WIDE) == WIDE


def test_commands_and_jobs_leave_the_size_to_the_input(
    tiny_wan_pipeline: WanPipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = image_to_video(tiny_wan_pipeline)
    assert (recommended_settings(pipe).height, recommended_settings(tiny_wan_pipeline).height) == (None, 480)
    assert Sizes(width=64).settings_for(pipe).height is None
    monkeypatch.setattr("galaxydit.eval.jobs.maker.load_pipeline", lambda *_, **__: pipe)
    assert load(Job(model="any", prompts=("a cat",)))[1].width is None


@pytest.mark.parametrize("name", ["image", "video"])
@pytest.mark.parametrize("area", [(64, 128), (480, 832), (704, 1280)])
def test_no_input_makes_a_video_larger_than_the_area(
    area: tuple[int, int], name: str, tiny_wan_pipeline: WanPipeline
) -> None:
    pipe, recommended = image_to_video(tiny_wan_pipeline), replace(WIDE, height=area[0], width=area[1])
    sizes = [(columns, rows) for columns in (1, 7, 64, 333, 999, 10_000) for rows in (1, 63, 480, 12_679)]
    fitted_sizes = 0
    for columns, rows in sizes:
        shown = Image.new("1", (columns, rows))
        inputs = {name: shown if name == "image" else [shown]}
        ratio = max(rows, columns) / min(rows, columns)
        if ratio <= min(area[0] * area[1] / 16**2, MOST["width"] / 16):
            fitted = fit_size(pipe, inputs, FREE, recommended)
            assert (fitted.height or 0) * (fitted.width or 0) <= area[0] * area[1]
            assert max(fitted.height or 0, fitted.width or 0) <= MOST["width"]
            fitted_sizes += 1
        else:
            with pytest.raises(GalaxyDiTError, match=rf"{name}='{columns}x{rows} pixels'.*not {ratio:,.0f}:1"):
                fit_size(pipe, inputs, FREE, recommended)
    assert 0 < fitted_sizes < len(sizes)


@pytest.mark.parametrize("side", [{"height": 64}, {"width": 64}])
def test_a_given_side_leaves_the_other_one_bounded(side: dict[str, int], tiny_wan_pipeline: WanPipeline) -> None:
    pipe, settings = image_to_video(tiny_wan_pipeline), replace(FREE, **side)
    for size in ((10_000, 1), (1, 10_000)):
        with pytest.raises(GalaxyDiTError, match="at most 16:1 for this video, not 10,000:1"):
            fit_size(pipe, {"image": Image.new("1", size)}, settings, WIDE)
