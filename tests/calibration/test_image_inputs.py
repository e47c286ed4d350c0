"""Calibration of pipelines that start from images and videos: each line of the prompts names its own."""

import json
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
from PIL import Image

import galaxydit
from galaxydit.calibration.budget import Budget
from galaxydit.calibration.calibration import calibrate
from galaxydit.errors import GalaxyDiTError
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.video import save_video

COLOURS = {"red": (200, 30, 30), "blue": (30, 30, 200), "green": (30, 200, 30), "white": (250, 250, 250)}


def parts_of(pipe: WanPipeline) -> dict[str, Any]:
    return {name: getattr(pipe, name) for name in ("tokenizer", "text_encoder", "vae", "scheduler")}


def image_to_video(pipe: WanPipeline) -> WanImageToVideoPipeline:
    config = dict(pipe.transformer.config) | {"in_channels": 36}
    return WanImageToVideoPipeline(**parts_of(pipe), transformer=WanTransformer3DModel.from_config(config).eval())


def vace(pipe: WanPipeline) -> WanVACEPipeline:
    """With Wan2.1's own kind of VAE, from whose downsamplings VACE counts the pixels of a latent."""
    vae = AutoencoderKLWan(
        base_dim=3, z_dim=16, dim_mult=[1] * 4, num_res_blocks=1, temperal_downsample=[False, True, True]
    )
    config = dict(pipe.transformer.config) | {"vace_layers": [0], "vace_in_channels": 2 * 16 + 8 * 8}
    transformer = WanVACETransformer3DModel.from_config(config).eval()
    return WanVACEPipeline(**parts_of(pipe) | {"vae": vae.eval()}, transformer=transformer)


def write_line(folder: Path, colour: str, name: str) -> str:
    """One line of a prompts file, and the image or video that it names."""
    path = folder / f"{colour}{'.png' if name == 'image' else '.mp4'}"
    if name == "image":
        Image.new("RGB", (32, 32), COLOURS[colour]).save(path)
    else:
        light = np.linspace(0.5, 1, 5)[:, None, None, None]
        save_video(np.tile(np.array(COLOURS[colour]) / 255, (5, 32, 32, 1)) * light, path, 8.0)
    return json.dumps({"prompt": f"a {colour} ball", name: str(path)})


@pytest.mark.parametrize(("make", "name"), [(image_to_video, "image"), (vace, "video")])
def test_a_profile_from_images_or_videos_is_met(
    make: Any, name: str, tiny_wan_pipeline: WanPipeline, settings: GenerationSettings, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    pipe = make(tiny_wan_pipeline)
    pipe.set_progress_bar_config(disable=True)
    lines = [write_line(tmp_path, colour, name) for colour in COLOURS]
    measured = calibrate(
        pipe,
        lines,
        resume_dir=tmp_path / "parts",
        budget=Budget((2, 2), True, 0, 1),
        settings=settings,
        speedups=(2.0,),
    )
    assert [recording.prompt for recording in measured.recordings] == lines[:2]
    assert {row.prompt for row in measured.verifications} == {lines[2]}
    measured.profile.save(tmp_path / "profile.json")
    with galaxydit.accelerate(pipe, speedup=2.0, profile=tmp_path / "profile.json") as acceleration:
        generate(pipe, lines[0], settings, 0)
    assert acceleration.report.compute_fraction == pytest.approx(0.5)
    assert not acceleration.report.notes


def test_the_parts_of_a_changed_image_are_measured_anew(
    tiny_wan_pipeline: WanPipeline, settings: GenerationSettings, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    pipe = image_to_video(tiny_wan_pipeline)
    pipe.set_progress_bar_config(disable=True)
    lines = [write_line(tmp_path, colour, "image") for colour in ("red", "blue", "green")]

    def parts() -> list[str]:
        options = {"resume_dir": tmp_path / "parts", "budget": Budget((2, 2), True, 8, 1), "speedups": (2.0,)}
        calibrate(pipe, lines, settings=settings, **options)
        return sorted(path.name.rpartition("-")[0] for path in (tmp_path / "parts" / "units").iterdir())

    first = [
        "check",
        "choice-0000",
        "choice-0001",
        "sample-0000",
        "sample-0001",
        "timing",
        "verification-0000",
    ]
    assert parts() == parts() == first
    Image.new("RGB", (32, 32), "white").save(tmp_path / "blue.png")
    # The profiles that are compared and verified are others.
    assert parts() == sorted([*first, "choice-0000", "choice-0001", "sample-0001", "verification-0000"])


def test_a_pipeline_that_leaves_out_the_first_steps_is_refused(
    tiny_wan_pipeline: WanPipeline, prompts: list[str], tmp_path: Path
) -> None:
    pipe = WanVideoToVideoPipeline(**parts_of(tiny_wan_pipeline), transformer=tiny_wan_pipeline.transformer)
    with pytest.raises(GalaxyDiTError, match=r"pipe='WanVideoToVideoPipeline'.*runs all steps.*strength.*0\.8"):
        calibrate(pipe, prompts, resume_dir=tmp_path)
