"""Verify a profile on held-out prompts: measure compute fraction, PSNR and seconds of each target."""

from collections.abc import Iterator
from dataclasses import dataclass

from diffusers import DiffusionPipeline

import galaxydit
from galaxydit.pipelines.generate import Generation, generate
from galaxydit.pipelines.psnr import psnr
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.profiles.schema import Profile


@dataclass(frozen=True)
class VerifiedPrompt:
    """One target of a profile on one held-out prompt, measured.

    Attributes:
        speedup: of the target.
        compute_fraction: block evaluations done / block evaluations without the plugin.
        psnr_db: PSNR against the plain video; at most 120.
        denoise_seconds, plain_seconds: denoising with the plugin and without it, in the same process.
    """

    speedup: float
    prompt: str
    seed: int
    compute_fraction: float
    psnr_db: float
    denoise_seconds: float
    plain_seconds: float


def verify_prompt(
    pipe: DiffusionPipeline,
    profile: Profile,
    prompt: str,
    settings: GenerationSettings,
    seed: int,
    plain: Generation | None = None,
) -> Iterator[VerifiedPrompt]:
    """Verify all targets on one prompt: one plain generation unless it is passed, then one for each target."""
    plain = plain or generate(pipe, prompt, settings, seed)
    for asked in profile.evidence.verifications:
        with galaxydit.accelerate(pipe, speedup=asked.speedup, profile=profile) as acceleration:
            fast = generate(pipe, prompt, settings, seed)
        yield VerifiedPrompt(
            speedup=asked.speedup,
            prompt=prompt,
            seed=seed,
            compute_fraction=acceleration.report.compute_fraction,
            psnr_db=psnr(fast.frames, plain.frames),
            denoise_seconds=fast.denoise_seconds,
            plain_seconds=plain.denoise_seconds,
        )
