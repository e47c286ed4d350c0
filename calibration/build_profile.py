"""Build a `Profile` from recordings.

The order of a profile is that of the prediction of reused steps: order 0 repeats the last full step, order 1
extrapolates the last two. A full step computes the transformer. A target holds the settings for one speedup: the noise
levels of its planned full steps (the policy "schedule") and its threshold (the policy "proxy"). The proxy distance is
the relative change of the proxy from step to step, summed over steps. The error map gives the expected relative error
of a reused step by noise level and by proxy distance since the last full step.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Literal

from diffusers import DiffusionPipeline

from galaxydit.calibration.fit import fit_error_map
from galaxydit.calibration.rank import Ranking, choose_proxy, rank_proxies
from galaxydit.calibration.recording import Recording, median_change, round_digits
from galaxydit.calibration.schedule_error import Order, ScheduleError
from galaxydit.calibration.search import (
    FullSteps,
    balanced,
    best_schedules,
)
from galaxydit.calibration.thresholds import deviation_weight, mean_distance, solve_threshold
from galaxydit.errors import refusal
from galaxydit.families import SEPARATE
from galaxydit.pipelines.conditions import device_name, package_versions
from galaxydit.pipelines.runs import hash_of
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.policies.budget import full_step_count
from galaxydit.policies.error_map import CumulativeDistance, ErrorMap
from galaxydit.policies.policy import Limits
from galaxydit.policies.proxy_threshold import ProxyThreshold, full_speedup
from galaxydit.policies.schedule import Schedule
from galaxydit.profiles.conditions import boundary_of, dtype_of
from galaxydit.profiles.evidence import ErrorPropagation, Evidence, Fit, Recorded, Verification
from galaxydit.profiles.fingerprint import model_of
from galaxydit.profiles.recipe import Recipe, Target
from galaxydit.profiles.schema import SCHEMA_VERSION, Conditions, Profile
from galaxydit.proxies import PROXIES, proxies_of
from galaxydit.runtime.recognition import blocks_of, family_of, transformers_of
from galaxydit.runtime.step import draws_noise

REUSE: Literal["output"] = "output"
WARMUP = 2
"""Number of first steps that every plan computes, because order 1 needs two full steps and early errors grow most.

Plans without a warm-up changed the layout of some wan-tiny videos at 4x, although their expected error was lower.
"""
SPARE_REUSE = 2  # reused steps in a row that a target allows beyond its longest interval


def build_profile(
    pipe: DiffusionPipeline,
    recordings: Sequence[Recording],
    settings: GenerationSettings,
    *,
    seed: int,
    speedups: Sequence[float],
    propagation: ErrorPropagation,
    name: str,
    ranking: Ranking | None = None,
    device: str | None = None,
    versions: Mapping[str, str] | None = None,
    full_shape: tuple[int, ...] = (),
    recorded: Recorded | None = None,
) -> Profile:
    """The profile that follows from recordings, before any video is compared or verified.

    It predicts at order 1, with a scheduler that draws noise at order 0.

    Args:
        pipe, settings: the pipeline and the settings of the recorded generations.
        recordings: one for each sample, that is, for each recorded generation.
        seed: of the first sample.
        speedups: block evaluations without the plugin / with it; the profile gets a target for each that can be
            planned, and for the numbers of full steps between them.
        propagation: growth of errors until the final latent, by noise level (`average_perturbations`).
        name: of the profile.
        ranking: each proxy's correlation with the error of reuse and its cost; by default `rank_proxies(recordings)`,
            in which all costs are 0.
        device, versions: device name and package versions of the recordings; by default those of this process.
        full_shape: latent shape of the videos that the profile is for; () if it is unknown.
        recorded: what the recordings were.

    Raises:
        GalaxyDiTError: no speedup can be planned.
    """
    ranking = ranking or rank_proxies(recordings)
    chosen, reason = choose_proxy(ranking)
    if (share := recordings[0].rounding) > 0:
        rounding = f"its dtype rounds the guided prediction by {100 * share:.1f} %"
        change = median_change(recordings)
        reason += f"; {rounding}, and a step changes it by {100 * change:.1f} % (medians over the steps)"
    transformers = list(transformers_of(pipe).values())
    order: Order = 0 if draws_noise(pipe.scheduler) else 1
    recipe, fit, verifications = _plan(pipe, recordings, chosen, propagation, speedups, order)
    return Profile(
        schema_version=SCHEMA_VERSION,
        name=name,
        source=f"galaxydit calibrate, {len(recordings)} recordings",
        model=model_of(transformers[0]),
        conditions=_profile_conditions(pipe, recordings, settings, seed, full_shape, device, versions),
        recipe=recipe,
        evidence=Evidence(reason, ranking.rows, fit, propagation, verifications, recorded=recorded),
        second_model=model_of(transformers[1]) if len(transformers) > 1 else None,
    )


def at_order(
    pipe: DiffusionPipeline,
    profile: Profile,
    recordings: Sequence[Recording],
    speedups: Sequence[float],
    order: Order,
) -> Profile:
    """`profile` with schedules, thresholds and error map planned again for predictions of `order`.

    `recordings` and the requested `speedups` are those from which `build_profile` made `profile`. `pipe` supplies the
    number of blocks, and whether its scheduler draws noise.
    """
    evidence, proxy = profile.evidence, profile.recipe.proxy
    recipe, fit, verifications = _plan(pipe, recordings, proxy, evidence.propagation, speedups, order)
    return replace(profile, recipe=recipe, evidence=replace(evidence, fit=fit, verifications=verifications))


def with_proxy(pipe: DiffusionPipeline, profile: Profile, recordings: Sequence[Recording], proxy: str) -> Profile:
    """`profile` with `proxy` in place of its proxy: error map and thresholds change, the schedules stay.

    `recordings` are those from which `profile` was built. `pipe` supplies only the number of blocks, from which the
    compute for reading the proxy follows.
    """
    recipe, share = profile.recipe, _share_of_step(pipe, recordings[0], proxy)
    error_map, fit = fit_error_map(recordings, proxy, recipe.order)
    cumulative, weight = mean_distance(recordings, proxy), deviation_weight(recordings, proxy, recipe.order)
    targets = with_thresholds(recordings, proxy, recipe.targets, cumulative, share, weight)
    verifications = tuple(
        replace(row, expected_error=largest_expected_error(profile.target_for(row.speedup), error_map, cumulative))
        for row in profile.evidence.verifications
    )
    recipe = replace(
        recipe,
        proxy=proxy,
        proxy_share=share,
        deviation_weight=weight,
        error_map=error_map,
        cumulative_distance=cumulative,
        targets=targets,
    )
    return replace(profile, recipe=recipe, evidence=replace(profile.evidence, fit=fit, verifications=verifications))


def _plan(
    pipe: DiffusionPipeline,
    recordings: Sequence[Recording],
    proxy: str,
    propagation: ErrorPropagation,
    speedups: Sequence[float],
    order: Order,
) -> tuple[Recipe, Fit | None, tuple[Verification, ...]]:
    """The recipe (the settings of a profile), the quality of its error map, and the verifications.

    The quality is R² and rank correlation of the expected and the measured errors on held-out recordings (`Fit`). For
    each of `speedups` that can be planned there is a `Verification` without measurements, which holds the largest
    expected error of a reused step. `propagation` gives by noise level the error of the final latent / the error made
    at that level. Raises GalaxyDiTError if no speedup can be planned.
    """
    sigmas, share_of_step = recordings[0].sigmas, _share_of_step(pipe, recordings[0], proxy)
    error_map, fit = fit_error_map(recordings, proxy, order)
    cumulative = mean_distance(recordings, proxy)
    # Rounding is left out: after the first reused step, full steps differ from the plain ones by rounding, too.
    model = ScheduleError(recordings, corrects=not draws_noise(pipe.scheduler))
    counts = sorted({full_step_count(len(sigmas), speedup) for speedup in speedups})
    model = balanced(model, propagation, counts, warmup=WARMUP, order=order)
    schedules = best_schedules(model, len(sigmas), propagation, warmup=WARMUP, order=order)
    targets = plan_targets(schedules, sigmas, speedups, WARMUP / len(sigmas))
    verifications = tuple(
        Verification(target.speedup, largest_expected_error(target, error_map, cumulative))
        for target in targets
        if target.speedup in speedups
    )
    if not verifications:
        expected = f"speedups of which one can be planned with {len(sigmas)} steps"
        raise refusal("speedups", tuple(speedups), expected, "pass smaller ones or more steps")
    weight = deviation_weight(recordings, proxy, order)
    targets = with_thresholds(recordings, proxy, targets, cumulative, share_of_step, weight)
    recipe = Recipe(proxy, REUSE, order, error_map, cumulative, targets, share_of_step, weight)
    return recipe, fit, verifications


def with_thresholds(
    recordings: Sequence[Recording],
    proxy: str,
    targets: Sequence[Target],
    cumulative: CumulativeDistance,
    share_of_step: float,
    weight: float,
) -> tuple[Target, ...]:
    """`targets`, each with the threshold of `proxy` that reaches its speedup on the recordings (`solve_threshold`).

    `cumulative` is the mean proxy distance from the first step to each step. The policy "proxy" takes as the distance
    of a sample this mean plus `weight`, in [0, 1], times the sample's deviation from it. `share_of_step` is the share
    of the block evaluations of a full step that a reused step runs to read the proxy.
    """
    steps, solved = len(recordings[0].sigmas), []
    for target in targets:
        full = full_speedup(target.speedup, share_of_step)
        planned = min(targets, key=lambda other: (abs(len(other.sigmas) - round(steps / full)), other.speedup))
        schedule = Schedule(full, planned.sigmas, None, cumulative, planned_sigmas=recordings[0].sigmas)
        limits = Limits(warmup=target.warmup, max_consecutive=None)
        policy = ProxyThreshold(schedule, deviation_weight=weight)
        threshold = solve_threshold(recordings, proxy, policy, limits, target.speedup, share_of_step)
        solved.append(replace(target, threshold=threshold))
    return tuple(solved)


def _share_of_step(pipe: DiffusionPipeline, recording: Recording, proxy: str) -> float:
    """Share of the block evaluations of a full step that a reused step runs to read the proxy.

    A reused step reads the proxy in one guidance branch alone, also where a full step calls the transformer for both.
    """
    transformer = next(iter(transformers_of(pipe).values()))
    family = family_of(transformer)
    calls = 2 if family.branches == SEPARATE and recording.guidance_scale > 1 else 1
    return PROXIES[proxy].cost / (len(blocks_of(transformer, family)) * calls)


def shares_of_blocks(pipe: DiffusionPipeline) -> dict[str, float]:
    """For each proxy of the pipeline, the share of a transformer call's blocks that it runs."""
    transformer = next(iter(transformers_of(pipe).values()))
    family = family_of(transformer)
    return {name: PROXIES[name].cost / len(blocks_of(transformer, family)) for name in proxies_of(family)}


def plan_targets(
    schedules: Mapping[int, tuple[FullSteps, float]],
    sigmas: Sequence[float],
    speedups: Sequence[float],
    warmup: float,
) -> tuple[Target, ...]:
    """The targets of a profile by rising speedup in block evaluations, without thresholds.

    Each of `speedups` gets a target with steps / speedup full steps, rounded (`full_step_count`). In addition, each
    number of full steps between these numbers gets a target whose speedup is steps / number, because a schedule
    stretched to another number of full steps drops early full steps. Targets whose number of full steps has no entry
    in `schedules` are left out.

    `schedules` holds by number of full steps their indices, and a score that is not used here (`best_schedules`).
    `sigmas` are the noise levels of all steps, and `warmup` is the share of first steps that are always computed.
    """
    steps, targets = len(sigmas), []
    asked = {round(steps / speedup) for speedup in speedups}
    between = {steps / count for count in range(min(asked) + 1, max(asked)) if count not in asked}
    for speedup in sorted({*speedups, *between}):
        count = full_step_count(steps, speedup)
        if count in schedules:
            full, _ = schedules[count]
            longest = max(after - before for before, after in pairwise(full))
            planned = tuple(sigmas[step] for step in full)
            targets.append(Target(speedup, warmup, max_consecutive=longest - 1 + SPARE_REUSE, sigmas=planned))
    return tuple(targets)


def largest_expected_error(target: Target, error_map: ErrorMap, cumulative: CumulativeDistance) -> float:
    """The largest relative error that `error_map` expects of a step that the planned schedule of `target` reuses.

    It is 0 if the schedule reuses no step. `cumulative` holds the proxy distance from the first step to each step, mean
    over the recordings. Its increase since the last full step is taken as the proxy distance of a reused step.
    """
    full = [cumulative.sigmas.index(sigma) for sigma in target.sigmas]
    expected = [
        error_map(cumulative.distances[step] - cumulative.distances[before], cumulative.sigmas[step])
        for before, after in pairwise(full)
        for step in range(before + 1, after)
    ]
    return round_digits(max(expected, default=0.0), 6)


def _profile_conditions(
    pipe: DiffusionPipeline,
    recordings: Sequence[Recording],
    settings: GenerationSettings,
    seed: int,
    full_shape: tuple[int, ...],
    device: str | None = None,
    versions: Mapping[str, str] | None = None,
) -> Conditions:
    """The conditions under which the recordings were made; `seed` is that of the first sample.

    `device` and package `versions` are by default those of this process.
    """
    first, config, shift = recordings[0], pipe.scheduler.config, settings.flow_shift
    if shift is None:
        shift = config.get("flow_shift", config.get("shift"))
    return Conditions(
        scheduler=type(pipe.scheduler).__name__,
        steps=first.steps,
        flow_shift=None if shift is None else float(shift),
        guidance_scale=first.guidance_scale,
        guidance_scale_2=first.guidance_scale if settings.guidance_scale_2 is None else settings.guidance_scale_2,
        boundary=boundary_of(pipe),
        latent_shape=full_shape,
        dtype=dtype_of(next(iter(transformers_of(pipe).values()))),
        device=device or device_name(pipe),
        samples=len(recordings),
        seed=seed,
        prompts_sha256=hash_of([[recording.prompt, recording.seed] for recording in recordings]),
        versions=versions or package_versions(),
        sigmas=first.sigmas,
    )
