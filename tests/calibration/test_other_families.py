"""Calibration follows the branches of other families: one batch, a guider's names, unnamed calls."""

from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tiny_table import PIPELINES

import galaxydit
from galaxydit.calibration.budget import Budget
from galaxydit.calibration.calibration import calibrate
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


@pytest.mark.parametrize("name", ["LTX condition", "Motif", "HunyuanVideo image"])
def test_a_profile_of_another_family_is_met(name: str, tmp_path: Path) -> None:
    pipe, _ = PIPELINES[name].build()
    read_texts(pipe, PIPELINES[name].arguments)
    measured = calibrate(
        pipe,
        ["a", "aa", "aaa", "aaaa"],
        resume_dir=tmp_path / "parts",
        budget=Budget((3, 3), True, 8, 1),
        settings=GenerationSettings(32, 32, 5, steps=12, guidance_scale=3.0),
        speedups=(2.0,),
    )
    measured.profile.save(tmp_path / "profile.json")
    with galaxydit.accelerate(pipe, speedup=2.0, profile=tmp_path / "profile.json") as acceleration:
        pipe("a", 3.0, 12, generator=torch.Generator().manual_seed(0))
    assert acceleration.report.compute_fraction == pytest.approx(0.5)
    assert not acceleration.report.notes
