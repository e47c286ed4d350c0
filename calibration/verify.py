"""Try a profile on generated videos: compute fraction, PSNR and seconds of a policy at a speedup on a prompt."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from diffusers import DiffusionPipeline

from galaxydit.pipelines.disturbance import PLAIN, Timed
from galaxydit.pipelines.generate import GeneratedVideo
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.trial import PlainVideo, accelerated, generate_with, result_of
from galaxydit.pipelines.trial_result import TrialResult
from galaxydit.profiles.schema import Profile
from galaxydit.request import SCHEDULE


@dataclass(frozen=True)
class Tried:
    """The trial of a profile with a policy ("schedule" or "proxy") at a speedup."""

    policy: str
    speedup: float
    prompt: str
    seed: int
    result: TrialResult

    @property
    def compute_fraction(self) -> float:
        return self.result.compute_fraction or math.nan

    @property
    def psnr_db(self) -> float:
        return self.result.metrics["psnr"]

    @property
    def seconds(self) -> tuple[float, float]:
        """Seconds of denoising without and with the plugin, in one process."""
        return self.result.plain_denoise_seconds or math.nan, self.result.denoise_seconds or math.nan

    @property
    def full_steps(self) -> tuple[int, ...]:
        calls = self.result.report["calls"] if self.result.report else ()
        return tuple(sorted({call["step"] for call in calls if not call["reused"]}))


def timings_of(rows: Sequence[Tried]) -> list[Timed]:
    """The timed generations of `rows`, with the plain generation of each prompt once."""
    plain = {(row.prompt, row.seed): Timed(PLAIN, row.seconds[0], 1.0) for row in rows}
    return [*plain.values(), *(row.result.timed(f"{row.policy} {row.speedup:g}x") for row in rows)]


def try_profile(
    pipe: DiffusionPipeline,
    profile: Profile,
    speedup: float,
    prompt: str,
    settings: GenerationSettings,
    seed: int,
    plain: GeneratedVideo,
    policy: str = SCHEDULE,
    keep: Callable[[str, GeneratedVideo], None] = lambda name, video: None,
) -> Tried:
    """Generate with a profile and compare with `plain`; `keep` gets the video with a name for it."""
    attach = partial(accelerated, speedup=speedup, policy=policy, profile=profile)
    made = generate_with(pipe, prompt, settings, seed, attach)
    keep(f"{policy}-{speedup:g}x-order-{profile.recipe.order}-{profile.recipe.proxy}", made.video)
    return Tried(policy, speedup, prompt, seed, result_of(pipe, made, PlainVideo(plain.frames, video=plain)))
