"""Build a `Profile` from recordings, and add what was measured with it. No other file here knows a profile's fields."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import fmean, median
from typing import Literal

import numpy as np
from diffusers import DiffusionPipeline

from galaxydit.calibration.costs import Costs
from galaxydit.calibration.fit import fit_error_map
from galaxydit.calibration.provenance import device_name, package_versions, scheduler_shift
from galaxydit.calibration.rank import choose_proxy, rank_proxies
from galaxydit.calibration.recording import Recording, mean_distances, round_digits
from galaxydit.calibration.schedule_error import ScheduleError
from galaxydit.calibration.search import Schedule, best_schedules
from galaxydit.calibration.verify import VerifiedPrompt
from galaxydit.errors import refusal
from galaxydit.families import transformers_of
from galaxydit.pipelines.runs import hash_of
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.policies.budget import full_step_count
from galaxydit.policies.error_map import CumulativeDistance, ErrorMap
from galaxydit.profiles.fingerprint import model_of
from galaxydit.profiles.resolve import boundary_of
from galaxydit.profiles.schema import (
    SCHEMA_VERSION,
    Conditions,
    ErrorPropagation,
    Evidence,
    Profile,
    Recipe,
    Seconds,
    Target,
    Verification,
)

ORDER: Literal[1] = 1
REUSE: Literal["output"] = "output"
SPARE_REUSE = 2  # reused steps in a row that a target allows beyond its longest interval


def build_profile(
    pipe: DiffusionPipeline,
    recordings: Sequence[Recording],
    settings: GenerationSettings,
    *,
    seed: int,
    speedups: Sequence[float],
    propagation: ErrorPropagation,
    name: str = "profile",
    proxy: str | None = None,
    progress: Callable[[str, int, int], None] = lambda stage, done, total: None,
) -> Profile:
    """The profile that follows from recordings alone, before verification; arguments as for `calibrate`.

    Raises GalaxyDiTError if no speedup can be planned.
    """
    ranking = rank_proxies(recordings)
    chosen, reason = choose_proxy(ranking)
    if proxy is not None:
        chosen, reason = proxy, f"{proxy} was asked for; {reason}"
    error_map, fit = fit_error_map(recordings, chosen, ORDER)
    sigmas, transformers = recordings[0].sigmas, list(transformers_of(pipe).values())
    cumulative = CumulativeDistance(sigmas, tuple(map(round_digits, np.cumsum(mean_distances(recordings, chosen)))))
    schedules = best_schedules(ScheduleError(recordings), len(sigmas), propagation)
    asked, between = sorted(set(speedups)), speedups_between(len(sigmas), speedups)
    targets: dict[float, Target] = {}
    for index, speedup in enumerate((*asked, *between)):
        target = plan_target(schedules, sigmas, speedup)
        if target is not None:
            targets[speedup] = target
        progress("planning", index + 1, len(asked) + len(between))
    planned = [targets[speedup] for speedup in asked if speedup in targets]
    if not planned:
        expected = f"speedups of which one can be planned with {len(sigmas)} steps"
        raise refusal("speedups", tuple(speedups), expected, "pass smaller ones or more steps")
    verifications = [
        Verification(target.speedup, largest_expected_error(target, error_map, cumulative)) for target in planned
    ]
    return Profile(
        schema_version=SCHEMA_VERSION,
        name=name,
        kind="measured",
        source=f"galaxydit calibrate, {len(recordings)} samples",
        model=model_of(transformers[0]),
        conditions=conditions_of(pipe, recordings, settings, seed),
        recipe=Recipe(
            proxy=chosen,
            reuse=REUSE,
            order=ORDER,
            error_map=error_map,
            cumulative_distance=cumulative,
            targets=tuple(targets[speedup] for speedup in sorted(targets)),
        ),
        evidence=Evidence(reason, ranking, fit, propagation, tuple(verifications)),
        second_model=model_of(transformers[1]) if len(transformers) > 1 else None,
    )


def plan_target(
    schedules: Mapping[int, tuple[Schedule, float]], sigmas: Sequence[float], speedup: float, warmup: float = 0.0
) -> Target | None:
    """The target of a profile for one speedup in block evaluations, at least 1; None where no schedule reaches it.

    `schedules` come from `best_schedules`, `sigmas` are those of all steps. A `warmup` that the recordings do not need
    costs full steps that serve better later.
    """
    count = full_step_count(len(sigmas), speedup)
    if count not in schedules:
        return None
    full, _ = schedules[count]
    return Target(
        speedup,
        warmup=warmup,
        max_consecutive=max(b - a for a, b in pairwise(full)) - 1 + SPARE_REUSE,
        sigmas=tuple(sigmas[step] for step in full),
    )


def largest_expected_error(target: Target, error_map: ErrorMap, cumulative: CumulativeDistance) -> float:
    """The largest expected relative error of a reused step of a target, on the mean trajectory of the recordings."""
    full = [cumulative.sigmas.index(sigma) for sigma in target.sigmas]
    expected = [
        error_map(cumulative.distances[step] - cumulative.distances[before], cumulative.sigmas[step])
        for before, after in pairwise(full)
        for step in range(before + 1, after)
    ]
    return round_digits(max(expected, default=0.0), 6)


def speedups_between(steps: int, speedups: Sequence[float]) -> tuple[float, ...]:
    """One speedup for each number of full steps that lies between those of `speedups`, rising.

    Each gets a plan of its own, because a schedule stretched to another number of full steps drops early ones.
    """
    planned = {round(steps / speedup) for speedup in speedups}
    return tuple(steps / count for count in range(max(planned), min(planned), -1) if count not in planned)


def conditions_of(
    pipe: DiffusionPipeline, recordings: Sequence[Recording], settings: GenerationSettings, seed: int
) -> Conditions:
    """What the recordings were made under."""
    first = recordings[0]
    return Conditions(
        scheduler=type(pipe.scheduler).__name__,
        steps=first.steps,
        flow_shift=settings.flow_shift if settings.flow_shift is not None else scheduler_shift(pipe),
        guidance_scale=first.guidance_scale,
        guidance_scale_2=first.guidance_scale if settings.guidance_scale_2 is None else settings.guidance_scale_2,
        boundary=boundary_of(pipe),
        latent_shape=first.latent_shape,
        dtype=str(next(iter(transformers_of(pipe).values())).dtype).removeprefix("torch."),
        device=device_name(pipe),
        samples=len(recordings),
        seed=seed,
        prompts_sha256=hash_of([[recording.prompt, recording.seed] for recording in recordings]),
        versions=package_versions(),
        sigmas=first.sigmas,
    )


def add_measurements(profile: Profile, costs: Costs, verifications: Sequence[VerifiedPrompt]) -> Profile:
    """The profile with what was measured for each target: means over the prompts, and the median speedup in seconds."""
    steps, verified, predicted, measured = profile.conditions.steps, [], [], []
    for asked in profile.evidence.verifications:
        predicted.append(round(costs.predicted_speedup(steps, len(profile.target_for(asked.speedup).sigmas)), 4))
        rows = [row for row in verifications if row.speedup == asked.speedup]
        if rows:
            measured.append(round(median(row.plain_seconds / row.denoise_seconds for row in rows), 4))
            asked = replace(
                asked,
                compute_fraction=round(fmean(row.compute_fraction for row in rows), 6),
                psnr_db=round(fmean(row.psnr_db for row in rows), 4),
            )
        verified.append(asked)
    seconds = Seconds(
        step=costs.step,
        block=costs.block,
        outside_blocks=costs.outside_blocks,
        outside_transformer=costs.outside_transformer,
        predicted_speedup=tuple(predicted),
        measured_speedup=tuple(measured),
    )
    return replace(profile, evidence=replace(profile.evidence, verifications=tuple(verified), seconds=seconds))
