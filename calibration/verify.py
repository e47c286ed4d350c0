"""Verify a profile on held-out prompts: is the speedup met, and what does it cost in fidelity?"""

from dataclasses import dataclass
from typing import Any

from diffusers import DiffusionPipeline

import galaxydit
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.psnr import psnr
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.policies.config import GalaxyDiTConfig
from galaxydit.policies.schedule import FixedSteps
from galaxydit.profiles.schema import Profile


@dataclass(frozen=True)
class VerifiedPrompt:
    """One target of a profile on one held-out prompt, measured.

    Attributes:
        speedup: of the target.
        prompt, seed: text and seed of the generations.
        compute_fraction: block evaluations done / block evaluations without the plugin.
        psnr_db: PSNR against the uncached video; at most 120.
        first_order_psnr_db: the same for the control, the target's schedule at order 1.
        denoise_seconds, plain_seconds: denoising with the plugin and without it, in the same process.
    """

    speedup: float
    prompt: str
    seed: int
    compute_fraction: float
    psnr_db: float
    first_order_psnr_db: float
    denoise_seconds: float
    plain_seconds: float


def verify_prompt(
    pipe: DiffusionPipeline, profile: Profile, prompt: str, settings: GenerationSettings, seed: int
) -> list[dict[str, Any]]:
    """Verify all targets on one prompt: one uncached generation, then up to two for each target.

    Returns the fields of one `VerifiedPrompt` for each target, as plain data.
    """
    plain = generate(pipe, prompt, settings, seed)
    rows = []
    for speedup in [asked.speedup for asked in profile.evidence.verifications]:
        target = profile.target_for(speedup)
        with galaxydit.accelerate(pipe, speedup=speedup, profile=profile) as acceleration:
            fast = generate(pipe, prompt, settings, seed)
        control = fast
        if target.coefficients:  # without coefficients the target itself is of order 1
            full = tuple(profile.conditions.sigmas.index(sigma) for sigma in target.sigmas)
            fixed = GalaxyDiTConfig(FixedSteps(full), reuse=profile.recipe.reuse, order=profile.recipe.order)
            with galaxydit.accelerate(pipe, config=fixed):
                control = generate(pipe, prompt, settings, seed)
        rows.append(
            {
                "speedup": speedup,
                "prompt": prompt,
                "seed": seed,
                "compute_fraction": acceleration.report.compute_fraction,
                "psnr_db": psnr(fast.frames, plain.frames),
                "first_order_psnr_db": psnr(control.frames, plain.frames),
                "denoise_seconds": fast.denoise_seconds,
                "plain_seconds": plain.denoise_seconds,
            }
        )
    return rows
