"""The configuration of the plugin for a request, from the profile of the model or without one."""

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any, cast

from torch import nn

from galaxydit.config import GalaxyDiTConfig
from galaxydit.errors import refusal
from galaxydit.families import Family
from galaxydit.policies.general_schedule import GeneralSchedule
from galaxydit.policies.online import Online
from galaxydit.policies.policy import warmup_steps
from galaxydit.policies.proxy_threshold import ProxyThreshold, full_speedup
from galaxydit.policies.schedule import Schedule, full_step_count
from galaxydit.policies.threshold import Threshold, threshold_for
from galaxydit.profiles.changed_conditions import boundary_of, fewest_steps
from galaxydit.profiles.recipe import Recipe
from galaxydit.profiles.schema import Profile
from galaxydit.proxies import ProxyName, proxies_of
from galaxydit.request import AUTO, DEFAULT_SPEEDUP, LOSSLESS, PAPER, PROXY, PolicyName, Request
from galaxydit.runtime.recognition import family_of, transformers_of

USUAL_STEPS = 50  # of video models
GENERAL_WARMUP = 0.04  # share of the steps, two of 50, because order 1 extrapolates two full steps
WARMUP_SHARE = 0.4  # largest share of the full steps that this warm-up takes
PAPER_WARMUP = 0.2  # share of first steps that arXiv 2512.03451 never reuses
DOCUMENTED_PROXIES = ("filtered_latent", "modulated_input", "block_residual", "noisy_latent")
"""Proxies for models that nobody calibrated, by falling published quality. On Wan2.1-T2V-1.3B, with half of the steps
computed, the PSNR of filtered_latent is 5.8 dB above that of modulated_input (arXiv 2602.18993)."""


def configure(
    pipe: Any, request: Request, profile: Profile | None, speedup: float | None, missing: str = ""
) -> GalaxyDiTConfig:
    """The configuration for a request, to plan `speedup` unless it is None; `missing` says why `profile` is None.

    Without a profile, a general schedule plans full steps, and `policy="proxy"` and `max_error` learn during the
    generation. Raises GalaxyDiTError for too large a speedup, and for "paper" without `threshold` or a calibration.
    """
    transformers = list(transformers_of(pipe).values())
    recipe = profile.recipe if profile else None
    boundary = boundary_of(pipe)
    proxy = request.proxy or cast(ProxyName, _proxy_of(recipe, transformers[0]))
    measured = None  # the profile, if its distances are of this proxy
    error_map = None
    if profile is not None and profile.recipe.proxy == proxy:
        measured = profile
        error_map = profile.recipe.error_map
    config = replace(_predicting_as(recipe, request.policy), proxy=proxy, few_steps=request.few_steps)

    # How much is reused follows from the proxy alone.
    warmup = PAPER_WARMUP if request.warmup is None else request.warmup
    paced = replace(config, warmup=warmup, max_consecutive=None)
    if request.threshold is not None or request.quality == LOSSLESS:
        return replace(paced, policy=Threshold(request.threshold or 0.0))
    if speedup is None:
        assert request.max_error is not None
        return replace(paced, policy=Online(request.max_error, error_map))
    if request.policy == PAPER:
        if measured is None:
            why = missing or f"the profile holds no distances of the proxy {config.watched.name}"
            cure = "pass for example threshold=0.1, or run `galaxydit calibrate`"
            raise refusal("policy", PAPER, f"a threshold too, because {why}", cure)
        return replace(paced, policy=Threshold(_paper_threshold(measured, paced, speedup)))

    if profile is None:
        steps = USUAL_STEPS
        most = config.max_consecutive
        warmup = min(GENERAL_WARMUP, WARMUP_SHARE / speedup) if request.warmup is None else request.warmup
        schedule: Schedule = GeneralSchedule(speedup, boundary=boundary, warmup_steps=warmup_steps(steps, warmup))
    else:
        steps = profile.conditions.steps or USUAL_STEPS
        target = profile.target_for(speedup)
        warmup = target.warmup if request.warmup is None else request.warmup
        most = target.max_consecutive
        fewest = 0
        if (request.speedup, request.max_error, request.few_steps) == (None, None, None):
            fewest = fewest_steps(profile)  # who names a goal gets it in short generations, too
        schedule = schedule_for(profile, speedup, fewest, boundary)
    config = replace(config, policy=schedule, warmup=warmup, max_consecutive=most)
    _check_reachable(speedup, steps, config, len(transformers))

    if request.max_error is not None:
        return replace(config, policy=Online(request.max_error, error_map, schedule))
    word = request.policy
    if profile is not None and word == AUTO:
        word = profile.target_for(speedup).policy
    if word != PROXY:
        return config
    if measured is None:  # the threshold is learned during the generation
        policy = ProxyThreshold(replace(schedule, error_map=None, cumulative_distance=None))
    else:
        policy = proxy_policy(measured, speedup, schedule.fewest_steps, boundary)
    return replace(config, policy=policy, max_consecutive=None)


def _proxy_of(recipe: Recipe | None, transformer: nn.Module) -> str:
    if recipe is not None:
        return recipe.proxy
    return documented_proxy(family_of(transformer))


def documented_proxy(family: Family) -> str:
    """The first of `DOCUMENTED_PROXIES` that a family offers."""
    offered = proxies_of(family)
    return next(name for name in DOCUMENTED_PROXIES if name in offered)


def schedule_for(profile: Profile, speedup: float, fewest: int = 0, boundary: float | None = None) -> Schedule:
    """The schedule of a profile for a speedup, with `Schedule.fewest_steps` and `Schedule.boundary`."""
    recipe = profile.recipe
    return Schedule(
        speedup,
        profile.target_for(speedup).sigmas,
        recipe.error_map,
        recipe.cumulative_distance,
        fewest,
        boundary,
        planned_sigmas=profile.conditions.sigmas,
    )


def proxy_policy(profile: Profile, speedup: float, fewest: int = 0, boundary: float | None = None) -> ProxyThreshold:
    """The policy "proxy" for a speedup, with the threshold of the profile's nearest target, or 1 without one.

    If reused steps run blocks to read the proxy, fewer full steps are planned, so that `speedup` counts these blocks.
    """
    schedule = schedule_for(profile, full_speedup(speedup, profile.recipe.proxy_share), fewest, boundary)
    threshold = profile.target_for(speedup).threshold or 1.0
    return ProxyThreshold(schedule, threshold, deviation_weight=profile.recipe.deviation_weight)


def _paper_threshold(profile: Profile, config: GalaxyDiTConfig, speedup: float) -> float:
    """The threshold with which arXiv 2512.03451 reaches a speedup in a generation that moves like the calibration."""
    _check_reachable(speedup, profile.conditions.steps, config, 1)
    moved = [0.0]
    for sigma in profile.conditions.sigmas:
        moved.append(profile.recipe.cumulative_distance(sigma))
    distances = [after - before for before, after in pairwise(moved)]
    full = full_step_count(len(distances), full_speedup(speedup, profile.recipe.proxy_share))
    return threshold_for(distances, full, config.limits)


def _predicting_as(recipe: Recipe | None, policy: PolicyName) -> GalaxyDiTConfig:
    """The default configuration with the prediction and correction of a recipe, or of the policy "paper"."""
    if policy == PAPER:
        return GalaxyDiTConfig(reuse="residual", order=0, correction=False)
    if recipe is None:
        return GalaxyDiTConfig()
    return GalaxyDiTConfig(
        order=recipe.order,
        slope=recipe.slope,
        largest_ahead=recipe.largest_ahead,
        correction_share=recipe.correction_share,
        reuse=recipe.reuse,
    )


def _check_reachable(speedup: float, steps: int, config: GalaxyDiTConfig, transformers: int) -> None:
    """Raise GalaxyDiTError if a speedup leaves fewer full steps than limits and transformers require."""
    always = max(2, warmup_steps(steps, config.warmup) + config.keep_last)
    least = min(steps, always + transformers - 1)  # each further transformer computes its first step
    if round(steps / speedup) < least:
        largest = max(1.0, math.floor(100 * steps / least) / 100)
        expected = f"at most {largest:g}, because no plan computes fewer than {least} of {steps} steps"
        raise refusal("speedup", speedup, expected, f"pass for example speedup={min(largest, DEFAULT_SPEEDUP):g}")
