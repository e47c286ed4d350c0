"""Calibration follows the branches of other families: one batch, a guider's names, unnamed calls."""

from collections.abc import Callable
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from diffusers import WanPipeline
from tiny_table import PIPELINES

import galaxydit
from galaxydit.calibration.budget import Budget
from galaxydit.calibration.calibration import calibrate
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.settings import GenerationSettings


def read_texts(pipe: Any, arguments: dict[str, Any]) -> None:
    """Let the pipeline take a prompt in place of embeddings, and return its latents as if they were frames."""
    kind = type(pipe)
    takes_scale = "guidance_scale" in signature(kind.__call__).parameters

    class FromText(kind):  # type: ignore[misc, valid-type]
        def __call__(
            self,
            prompt: str,
            guidance_scale: float,
            num_inference_steps: int,
            generator: torch.Generator,
            height: int = 32,
            width: int = 32,
            num_frames: int = 5,
            output_type: str = "latent",
            callback_on_step_end: Any = None,
        ) -> Any:
            scale = {"guidance_scale": guidance_scale} if takes_scale else {}
            latents = super().__call__(
                **arguments | scale | {"prompt_embeds": arguments["prompt_embeds"] + len(prompt) / 100},
                num_inference_steps=num_inference_steps,
                generator=generator,
                output_type="latent",
                callback_on_step_end=callback_on_step_end,
            )
            return SimpleNamespace(frames=latents.frames.flatten()[:48].sigmoid().view(1, 1, 4, 4, 3).float().numpy())

    FromText.__name__ = kind.__name__
    pipe.__class__ = FromText


def two_transformers(build: Callable[[], WanPipeline]) -> WanPipeline:
    """Wan2.2 A14B's switch from one transformer to another."""
    second = {"transformer_2": build().transformer, "boundary_ratio": 0.9}
    return WanPipeline(**(build().components | second))


@pytest.mark.parametrize("name", ["LTX condition", "Motif", "HunyuanVideo image", "two transformers", "no guidance"])
def test_a_family_is_calibrated_and_its_profile_is_used(
    name: str, tiny_wan_builder: Callable[[], WanPipeline], tmp_path: Path
) -> None:
    settings = GenerationSettings(32, 32, 5, steps=12, guidance_scale=1.0 if name == "no guidance" else 3.0)
    if name in PIPELINES:
        pipe, _ = PIPELINES[name].build()
        read_texts(pipe, PIPELINES[name].arguments)
    else:
        pipe = two_transformers(tiny_wan_builder) if name == "two transformers" else tiny_wan_builder()
    pipe.set_progress_bar_config(disable=True)
    measured = calibrate(pipe, resume_dir=tmp_path / "parts", budget=Budget((2, 2)), settings=settings, speedups=(2.0,))
    assert measured.profile.conditions.samples == 2
    measured.profile.save(tmp_path / "profile.json")
    with galaxydit.accelerate(pipe, speedup=2.0, profile=tmp_path / "profile.json") as acceleration:
        generate(pipe, "a", settings, 0, decode=name in PIPELINES)
    assert acceleration.report.compute_fraction == pytest.approx(0.5)
    assert all("unverified" in note for note in acceleration.report.notes)
