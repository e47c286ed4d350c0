"""How much of a PSNR is rounding: the same video twice in bfloat16, and the default and plain steps in both dtypes.

`python -m galaxydit.eval.studies.rounding --prompts 12` logs PSNRs on captions not used in training. "Plain
again" is a plain generation whose latent is changed by a ten-thousandth of the noise before one step. All its steps are
computed, so its distance from the plain video is what rounding alone has become at the end.
"""

import argparse
import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from diffusers import WanPipeline
from numpy.typing import NDArray

import galaxydit
from galaxydit.eval.compare.methods.chosen_steps import chosen_noise_levels
from galaxydit.eval.studies.batches import generate_in_batches
from galaxydit.pipelines.loading import load_pipeline
from galaxydit.pipelines.psnr import psnr
from galaxydit.pipelines.published_models import recommended_settings
from galaxydit.pipelines.wan_tiny.world import draw_prompts
from galaxydit.profiles.registry import load_profile

logger = logging.getLogger(__name__)
SEED = 77
CHANGE = 1e-4
FIRST_STEPS = (1, 10, 14)  # the plans for 2.5x and 2x first reuse steps 10 and 14
SPEEDUPS = (2.0, 2.5, 3.0)
RATIO = 2.5  # of the flow shift; of those that `chosen steps` tries the best here, beside the plan's own levels
Videos = NDArray[np.float32]


def changed_before(step: int) -> dict[str, Any]:
    """Arguments of the pipeline's call that change the latent a little before a step."""

    def on_step_end(pipe: WanPipeline, index: int, timestep: Any, tensors: dict[str, Any]) -> dict[str, Any]:
        if index == step - 1:
            noise = torch.randn(tensors["latents"].shape, generator=torch.Generator().manual_seed(SEED))
            tensors["latents"] = tensors["latents"] + CHANGE * noise
        return tensors

    return {"callback_on_step_end": on_step_end}


class Rounding:
    """Videos of the prompts under one pipeline."""

    def __init__(self, pipe: WanPipeline, prompts: Sequence[str]) -> None:
        self.pipe, self.prompts = pipe, prompts
        self.settings = recommended_settings(pipe)
        self.profile = load_profile("wan-tiny")

    def videos(
        self, within: AbstractContextManager[Any] | None = None, steps: int | None = None, **call: Any
    ) -> Videos:
        """`(prompts, frames, height, width, 3)` in [0, 1], generated within a context."""
        settings = replace(self.settings, steps=steps or self.settings.steps)
        with within or nullcontext():
            return generate_in_batches(self.pipe, self.prompts, SEED, settings, **call)

    def measure(self, name: str) -> Videos:
        """Log the rows of the dtype called `name`; the plain videos."""
        plain = self.videos()
        for step in FIRST_STEPS:
            report(f"{name}, plain again, changed before step {step}", self.videos(**changed_before(step)), plain)
        for speedup in SPEEDUPS:
            default = self.videos(galaxydit.accelerate(self.pipe, speedup=speedup))
            report(f"{name}, default at {speedup:g}x", default, plain)
            sigmas = self.profile.conditions.sigmas
            kept = [sigmas.index(sigma) for sigma in self.profile.target_for(speedup).sigmas]
            planned = chosen_noise_levels(self.pipe, len(sigmas), kept)
            shifted = chosen_noise_levels(self.pipe, len(kept), range(len(kept)), RATIO)
            for levels, within in (("the plan's levels", planned), (f"flow shift times {RATIO:g}", shifted)):
                report(f"{name}, {len(kept)} plain steps, {levels}", self.videos(within, len(kept)), plain)
        return plain


def report(name: str, videos: Videos, plain: Videos) -> None:
    """Log mean and worst PSNR, dB."""
    found = [psnr(video, before) for video, before in zip(videos, plain, strict=True)]
    logger.info("%-50s %.1f dB, worst %.1f", name, np.mean(found), min(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=12)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    prompts = draw_prompts(arguments.prompts, SEED)
    plain = []
    for name, dtype in (("bfloat16", torch.bfloat16), ("float32", torch.float32)):
        pipe = load_pipeline("wan-tiny", dtype=dtype)
        pipe.set_progress_bar_config(disable=True)
        plain.append(Rounding(pipe, prompts).measure(name))
    report("plain in float32 beside plain in bfloat16", plain[1], plain[0])


if __name__ == "__main__":
    main()
