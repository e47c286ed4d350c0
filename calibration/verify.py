"""Measure a profile on a prompt by generated videos: compute fraction, PSNR and seconds at one speedup.

A profile holds the plugin's settings for a model. Its policy "schedule" computes planned steps. Its policy "proxy"
computes a step when a cheap tensor, the proxy, has changed enough since the last computed step. The output of all other
steps is predicted.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from diffusers import DiffusionPipeline

import galaxydit
from galaxydit.pipelines.disturbance import PLAIN, Timed
from galaxydit.pipelines.generate import GeneratedVideo, generate
from galaxydit.pipelines.psnr import psnr
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.profiles.schema import Profile
from galaxydit.request import SCHEDULE


@dataclass(frozen=True)
class VerifiedPrompt:
    """Measurements of one generation with a profile, at one speedup and policy, on one prompt.

    Attributes:
        policy: "schedule" or "proxy".
        speedup: the requested speedup in block evaluations.
        compute_fraction: block evaluations done / block evaluations without the plugin.
        psnr_db: PSNR against the plain video, which is the video without the plugin; at most 120.
        denoise_seconds, plain_seconds: denoising with the plugin and without it, in the same process.
        full_steps: indices of the steps that were computed.
        load, shared: of the accelerated video, see `GeneratedVideo`.
    """

    policy: str
    speedup: float
    prompt: str
    seed: int
    compute_fraction: float
    psnr_db: float
    denoise_seconds: float
    plain_seconds: float
    full_steps: Sequence[int] = ()
    load: float | None = None
    shared: bool = False


def timings_of(rows: Sequence[VerifiedPrompt]) -> list[Timed]:
    """The timed generations of `rows`, with the plain generation of each prompt once."""
    plain = {(row.prompt, row.seed): Timed(PLAIN, row.plain_seconds, 1.0) for row in rows}
    return [
        *plain.values(),
        *(
            Timed(f"{row.policy} {row.speedup:g}x", row.denoise_seconds, row.compute_fraction, row.load, row.shared)
            for row in rows
        ),
    ]


def verify_target(
    pipe: DiffusionPipeline,
    profile: Profile,
    speedup: float,
    prompt: str,
    settings: GenerationSettings,
    seed: int,
    plain: GeneratedVideo,
    policy: str = SCHEDULE,
    keep: Callable[[str, GeneratedVideo], None] = lambda name, video: None,
) -> VerifiedPrompt:
    """Generate the prompt with `profile` at `speedup`, and compare with `plain`, the generation without the plugin.

    `policy` is "schedule" or "proxy"; `keep` gets the video with a name for it. Returns the compute fraction,
    the PSNR and the seconds of denoising.
    """
    with galaxydit.accelerate(pipe, speedup=speedup, policy=policy, profile=profile) as acceleration:
        fast = generate(pipe, prompt, settings, seed)
    keep(f"{policy}-{speedup:g}x-order-{profile.recipe.order}-{profile.recipe.proxy}", fast)
    return VerifiedPrompt(
        policy=policy,
        speedup=speedup,
        prompt=prompt,
        seed=seed,
        compute_fraction=acceleration.report.compute_fraction,
        psnr_db=psnr(fast.frames, plain.frames),
        denoise_seconds=fast.denoise_seconds,
        plain_seconds=plain.denoise_seconds,
        full_steps=[step for step, _ in acceleration.report.computed_steps],
        load=fast.load,
        shared=fast.shared,
    )
