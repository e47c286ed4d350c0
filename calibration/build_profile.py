"""Build a `Profile` from recordings, and add what was measured with it. No other file here knows a profile's fields."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import fmean, median

import numpy as np
from diffusers import DiffusionPipeline

from galaxydit.acceleration import transformers_of
from galaxydit.calibration.costs import Costs
from galaxydit.calibration.fit import fit_error_map
from galaxydit.calibration.provenance import device_name, package_versions, scheduler_shift
from galaxydit.calibration.rank import choose_proxy, rank_proxies
from galaxydit.calibration.recording import Recording, mean_distances, round_digits
from galaxydit.calibration.search import Planner
from galaxydit.calibration.store import Progress, hash_of
from galaxydit.calibration.verify import VerifiedPrompt
from galaxydit.config import Config
from galaxydit.error_map import ErrorMap
from galaxydit.errors import GalaxyDiTError
from galaxydit.fingerprint import model_of
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.planning import reused_cost
from galaxydit.profile import SCHEMA_VERSION, Conditions, Profile, Seconds, Target
from galaxydit.propagation import Propagation

ORDER, REUSE = 1, "output"
SPARE_REUSE = 2  # reused steps in a row that a target allows beyond its longest interval


def build_profile(
    pipe: DiffusionPipeline,
    recordings: Sequence[Recording],
    settings: GenerationSettings,
    *,
    seed: int,
    speedups: Sequence[float],
    propagation: Propagation,
    name: str = "profile",
    proxy: str | None = None,
    progress: Progress = lambda stage, done, total: None,
) -> Profile:
    """The profile that follows from recordings alone, before verification; arguments as for `calibrate`.

    Raises GalaxyDiTError if no speedup can be planned.
    """
    ranking = rank_proxies(recordings)
    chosen, reason = choose_proxy(ranking)
    if proxy is not None:
        chosen, reason = proxy, f"{proxy} was asked for; {reason}"
    error_map, fit = fit_error_map(recordings, chosen, ORDER)
    cumulative = tuple(map(round_digits, np.cumsum(mean_distances(recordings, chosen))))
    planner = Planner(recordings, propagation)
    asked, between = sorted(set(speedups)), speedups_between(recordings[0].steps, speedups)
    targets: dict[float, Target] = {}
    for index, speedup in enumerate((*asked, *between)):
        target = plan_target(planner, speedup, error_map, cumulative)
        if target is not None:
            targets[speedup] = target
        progress("planning", index + 1, len(asked) + len(between))
    if targets.keys().isdisjoint(asked):
        raise GalaxyDiTError(
            f"speedups={tuple(speedups)} is not allowed: expected speedups of which one can be planned with "
            f"{recordings[0].steps} steps; pass smaller ones or more steps"
        )
    return Profile(
        schema_version=SCHEMA_VERSION,
        name=name,
        kind="measured",
        source=f"galaxydit calibrate, {len(recordings)} samples",
        model=model_of(transformers_of(pipe)["transformer"]),
        conditions=conditions_of(pipe, recordings, settings, seed),
        proxy=chosen,
        reason=reason,
        ranking=ranking,
        error_map=error_map,
        fit=fit,
        clock=cumulative,
        propagation=propagation,
        order=ORDER,
        reuse=REUSE,
        reused_cost=round(reused_cost(transformers_of(pipe)["transformer"], Config(proxy=chosen)), 6),
        targets=tuple(targets[speedup] for speedup in asked if speedup in targets),
        unverified=tuple(targets[speedup] for speedup in between if speedup in targets),
    )


def plan_target(
    planner: Planner, speedup: float, error_map: ErrorMap, cumulative_distance: Sequence[float]
) -> Target | None:
    """The target of a profile for one speedup; None where no schedule reaches it.

    Args:
        planner: with the recordings.
        speedup: in block evaluations, at least 1.
        error_map, cumulative_distance: expected error by proxy distance and sigma, and the mean distance from the first
            step to each step, `(steps,)`. They give the target's largest expected error.
    """
    sigmas = planner.error.sigmas
    planned = planner.plan(max(2, min(len(sigmas), round(len(sigmas) * (1 / speedup)))))
    if planned is None:
        return None
    expected = [
        error_map(cumulative_distance[step] - cumulative_distance[full], sigmas[step])
        for full, following in pairwise(planned.full)
        for step in range(full + 1, following)
    ]
    return Target(
        speedup,
        warmup=0.0,  # a longer one costs full steps that serve better later
        max_consecutive=max(b - a for a, b in pairwise(planned.full)) - 1 + SPARE_REUSE,
        follow=0.0,
        schedule=tuple(sigmas[step] for step in planned.full),
        weights=planned.coefficients,
        expected_error=round_digits(max(expected, default=0.0), 6),
    )


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
        latent_shape=first.latent_shape,
        dtype=str(pipe.transformer.dtype).removeprefix("torch."),
        device=device_name(pipe),
        samples=len(recordings),
        seed=seed,
        prompts_sha256=hash_of([[recording.prompt, recording.seed] for recording in recordings]),
        versions=package_versions(),
        sigmas=first.sigmas,
    )


def add_measurements(profile: Profile, costs: Costs, verifications: Sequence[VerifiedPrompt]) -> Profile:
    """The profile with what was measured for each target: means over the prompts, and the median speedup in seconds."""
    steps, targets, predicted, measured = profile.conditions.steps, [], [], []
    for target in profile.targets:
        predicted.append(round(costs.predicted_speedup(steps, len(target.schedule)), 4))
        rows = [row for row in verifications if row.speedup == target.speedup]
        if rows:
            measured.append(round(median(row.plain_seconds / row.denoise_seconds for row in rows), 4))
            target = replace(
                target,
                compute_fraction=round(fmean(row.compute_fraction for row in rows), 6),
                psnr_db=round(fmean(row.psnr_db for row in rows), 4),
                fixed_psnr_db=round(fmean(row.first_order_psnr_db for row in rows), 4),
            )
        targets.append(target)
    seconds = Seconds(
        step=costs.step,
        block=costs.block,
        outside_blocks=costs.outside_blocks,
        outside_transformer=costs.outside_transformer,
        predicted_speedup=tuple(predicted),
        measured_speedup=tuple(measured),
    )
    return replace(profile, targets=tuple(targets), seconds=seconds)
