"""Real generations on prompts that the calibration has not seen: is the speedup met, and what does it cost?"""

from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import numpy as np
from diffusers import DiffusionPipeline
from numpy.typing import NDArray

from galaxydit.acceleration import Acceleration
from galaxydit.calibration.replay import planned_config, replay
from galaxydit.config import Config
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.profile import Profile, Target

HIGHEST_PSNR = 200.0  # dB, stands for equal videos: JSON has no infinity


@dataclass(frozen=True)
class Verified:
    """One target on one unseen prompt.

    Attributes:
        compute_fraction: block evaluations done / without the plugin.
        psnr_db, fixed_psnr_db: PSNR against the plain video, of the plan and of its schedule at order 1.
        denoise_seconds, plain_seconds: with the plugin and without, in the same process.
    """

    speedup: float
    prompt: str
    seed: int
    compute_fraction: float
    psnr_db: float
    fixed_psnr_db: float
    denoise_seconds: float
    plain_seconds: float


def verify_prompt(
    pipe: DiffusionPipeline, profile: Profile, prompt: str, settings: GenerationSettings, seed: int
) -> list[dict[str, Any]]:
    """All targets of a profile on one prompt, as plain data: one plain generation, then two for each target."""
    plain = generate(pipe, prompt, settings, seed)
    rows = []
    for target in profile.targets:
        config = planned_config(profile, target, target.speedup)
        if config is None:
            continue
        fixed = Config(reuse=profile.reuse, order=profile.order, schedule=fixed_schedule(profile, target))
        with Acceleration(pipe, config) as acceleration:
            fast = generate(pipe, prompt, settings, seed)
            fraction = acceleration.report.compute_fraction
            computed = {call.step for call in acceleration.report.calls if not call.reused}
        by_schedule = fast
        if target.weights or computed != set(fixed.schedule or ()):  # or else it would be the same video
            with Acceleration(pipe, fixed):
                by_schedule = generate(pipe, prompt, settings, seed)
        rows.append(
            {
                "speedup": target.speedup,
                "prompt": prompt,
                "seed": seed,
                "compute_fraction": fraction,
                "psnr_db": psnr(fast.frames, plain.frames),
                "fixed_psnr_db": psnr(by_schedule.frames, plain.frames),
                "denoise_seconds": fast.denoise_seconds,
                "plain_seconds": plain.denoise_seconds,
            }
        )
    return rows


def fixed_schedule(profile: Profile, target: Target) -> tuple[int, ...]:
    """The full steps of the plan on the mean trajectory: the control that knows the calibration but not the sample."""
    config = planned_config(profile, target, target.speedup)
    if config is None:
        return tuple(range(profile.conditions.steps))
    distances = [0.0, *(b - a for a, b in zip(profile.clock, profile.clock[1:], strict=False))]
    return replay(profile.conditions.sigmas, distances, config).full


def with_measurements(profile: Profile, rows: list[Verified]) -> Profile:
    """The profile with what was measured for each target: means over the prompts."""
    targets = []
    for target in profile.targets:
        own = [row for row in rows if row.speedup == target.speedup]
        if own:
            target = replace(
                target,
                compute_fraction=round(fmean(row.compute_fraction for row in own), 6),
                psnr_db=round(fmean(row.psnr_db for row in own), 4),
                fixed_psnr_db=round(fmean(row.fixed_psnr_db for row in own), 4),
            )
        targets.append(target)
    return replace(profile, targets=tuple(targets))


def psnr(video: NDArray[np.float32], reference: NDArray[np.float32]) -> float:
    """Peak signal-to-noise ratio in dB of a video `(frames, height, width, 3)` in [0, 1]; 200 for equal ones."""
    mean_square = float(np.mean(np.subtract(video, reference, dtype=np.float64) ** 2))
    return HIGHEST_PSNR if mean_square == 0 else min(HIGHEST_PSNR, -10 * float(np.log10(mean_square)))
