"""Try a profile on generated videos, and add to it what was measured and which policy is better at which speedup.

A paired lead is the mean over prompts of the difference of two PSNRs, in dB.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean, median

import numpy as np
from diffusers import DiffusionPipeline

from galaxydit.calibration.bootstrap import draws_of, interval
from galaxydit.calibration.costs import predicted_speedup
from galaxydit.pipelines.disturbance import PLAIN, Timed, disturbance
from galaxydit.pipelines.generate import GeneratedVideo
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.trial import PlainVideo, accelerated, generate_with, result_of
from galaxydit.pipelines.trial_result import TrialResult
from galaxydit.profiles.evidence import Seconds, Verification
from galaxydit.profiles.schema import Profile
from galaxydit.request import PROXY, SCHEDULE


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


def add_measurements(profile: Profile, seconds: Seconds, verified: Sequence[Tried]) -> Profile:
    """`profile` with the measurements at each requested speedup and the better policy of each target.

    "proxy" is better where the one-sided 95 % interval of its paired lead lies above 0; otherwise the schedule is
    followed, because its compute is known beforehand. A target without measurements follows the nearest measured
    speedup.
    """
    steps, predicted, measured = profile.conditions.steps, [], []
    schedule, proxy, better = [], [], set()
    for asked in profile.evidence.verifications:
        predicted.append(round(predicted_speedup(seconds, steps, len(profile.target_for(asked.speedup).sigmas)), 4))
        at_speedup = [row for row in verified if row.speedup == asked.speedup]
        rows = {word: [row for row in at_speedup if row.policy == word] for word in (SCHEDULE, PROXY)}
        if rows[SCHEDULE]:
            measured.append(round(median(plain / fast for plain, fast in (row.seconds for row in rows[SCHEDULE])), 4))
        schedule.append(verification_of(asked.speedup, rows[SCHEDULE], asked.expected_error))
        if rows[PROXY]:
            proxy.append(verification_of(asked.speedup, rows[PROXY]))
            pairs = zip(rows[PROXY], rows[SCHEDULE], strict=True)
            if lead_of([by_proxy.psnr_db - by_schedule.psnr_db for by_proxy, by_schedule in pairs]) > 0:
                better.add(asked.speedup)
    known = [row.speedup for row in proxy]
    targets = tuple(
        replace(target, policy="proxy")
        if known and min(known, key=lambda speedup: abs(speedup - target.speedup)) in better
        else target
        for target in profile.recipe.targets
    )
    seconds = replace(
        seconds,
        predicted_speedup=tuple(predicted),
        measured_speedup=tuple(measured),
        disturbance=disturbance([Timed("the first timing", seconds.step * steps, 1.0), *timings_of(verified)]),
    )
    evidence = replace(
        profile.evidence, verifications=tuple(schedule), proxy_verifications=tuple(proxy), seconds=seconds
    )
    return replace(profile, recipe=replace(profile.recipe, targets=targets), evidence=evidence)


def verification_of(speedup: float, rows: Sequence[Tried], expected_error: float | None = None) -> Verification:
    """The verification at a speedup from the rows of one policy, one for each prompt; without rows, empty."""
    if not rows:
        return Verification(speedup, expected_error)
    psnrs = [row.psnr_db for row in rows]
    low, high = interval(psnrs)
    return Verification(
        speedup=speedup,
        expected_error=expected_error,
        compute_fraction=round(fmean(row.compute_fraction for row in rows), 6),
        psnr_db=round(fmean(psnrs), 4),
        psnr_low=None if low is None else round(low, 4),
        psnr_high=None if high is None else round(high, 4),
        prompts=len(rows),
    )


def lead_of(differences: Sequence[float]) -> float:
    """Lower end of the one-sided 95 % interval of the mean of `differences`; -inf for fewer than two."""
    if len(differences) < 2:
        return -math.inf
    return float(np.quantile(np.asarray(differences)[draws_of(len(differences))].mean(axis=1), 0.05))
