"""Turn the request of a user and the profile of the model into a configuration."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from torch import nn

from galaxydit.config import GalaxyDiTConfig
from galaxydit.errors import GalaxyDiTError, refusal
from galaxydit.families import Family
from galaxydit.outcome import Goal, VerifiedPsnr
from galaxydit.policies.budget import full_step_count
from galaxydit.policies.general_schedule import USUAL_STEPS, GeneralSchedule, general_schedule
from galaxydit.policies.online import Online
from galaxydit.policies.policy import warmup_steps
from galaxydit.policies.proxy_threshold import ProxyThreshold, full_speedup
from galaxydit.policies.schedule import Schedule
from galaxydit.policies.threshold import Threshold, threshold_for
from galaxydit.profiles.conditions import boundary_of, fewest_steps
from galaxydit.profiles.fingerprint import profile_mismatch
from galaxydit.profiles.recipe import Recipe, Target
from galaxydit.profiles.registry import find_profile, load_profile
from galaxydit.profiles.schema import Profile, fastest_verified
from galaxydit.profiles.settings import Settings
from galaxydit.proxies import proxies_of
from galaxydit.request import AUTO, DEFAULT_SPEEDUP, LOSSLESS, PAPER, PROXY, Request
from galaxydit.runtime.recognition import family_of, transformers_of

GENERAL_WARMUP = 0.04  # share of the steps, two of 50, because order 1 extrapolates two full steps
WARMUP_SHARE = 0.4  # largest share of the full steps that this warm-up takes
PAPER_WARMUP = 0.2  # share of first steps that arXiv 2512.03451 never reuses
DOCUMENTED_PROXIES = ("filtered_latent", "modulated_input", "block_residual", "noisy_latent")
"""Proxies for models that nobody calibrated, by falling published quality. On Wan2.1-T2V-1.3B, with half of the steps
computed, the PSNR of filtered_latent is 5.8 dB above that of modulated_input (arXiv 2602.18993)."""


def resolve(pipe: Any, request: Request) -> Settings:
    """The settings of a pipeline or a transformer for a request.

    Raises GalaxyDiTError for a profile of another model, and for a speedup or PSNR that cannot be reached.
    """
    transformers = list(transformers_of(pipe).values())
    profile, missing = _profile_of(transformers, request.profile)
    speedup, text, verified = request.planned_speedup, str(request), None
    if request.min_psnr is not None:
        verified = fastest_verified(profile, missing, request.min_psnr, request.policy)
        speedup = verified.speedup
        text += f", so {speedup:g}x"
    elif profile is not None and speedup is not None and (request.max_error, request.warmup) == (None, None):
        own_proxy = request.proxy in (None, profile.recipe.proxy)
        verified = profile.verified_at(speedup, request.policy) if own_proxy else None
    settings = _settings(pipe, request, profile, missing, speedup)
    psnr = None
    if verified is not None and verified.psnr_db is not None:
        psnr = VerifiedPsnr(verified.psnr_db, verified.psnr_low, verified.psnr_high, verified.prompts)
    given = None if request.profile is None else profile
    return replace(settings, goal=Goal(text, speedup, psnr, request.min_psnr), given=given)


def _settings(pipe: Any, request: Request, profile: Profile | None, missing: str, speedup: float | None) -> Settings:
    """Settings without a `goal`; `missing` says why `profile` is None, `speedup` is None if none is to be planned."""
    transformers = list(transformers_of(pipe).values())
    if request.quality == LOSSLESS:
        request = replace(request, quality=None, threshold=0.0)
    if request.threshold is not None or request.policy == PAPER:
        return _by_threshold(request, profile, missing, family_of(transformers[0]), speedup)
    if profile is None:
        config = without_profile(pipe, request)
        source = {GeneralSchedule: "a general schedule", Online: "errors learned during the generation"}.get(
            type(config.policy), f"the proxy {config.proxy} with a threshold learned during the generation"
        )
        note = f"{missing}: full steps come from {source}; `galaxydit calibrate` measures a profile"
        return Settings(config, None, (note,))
    return _with_profile(pipe, request, profile, transformers, speedup)


def without_profile(pipe: Any, request: Request) -> GalaxyDiTConfig:
    """The configuration for a request without a profile, `threshold` or `min_psnr`.

    `policy="proxy"` and `max_error` learn during the generation. Raises GalaxyDiTError for too large a speedup.
    """
    transformers = list(transformers_of(pipe).values())
    family, plain = family_of(transformers[0]), GalaxyDiTConfig()
    speedup = request.planned_speedup
    proxy = request.proxy or documented_proxy(family)
    if speedup is None:
        assert request.max_error is not None
        warmup = PAPER_WARMUP if request.warmup is None else request.warmup
        return replace(
            plain, policy=Online(request.max_error, None, None), proxy=proxy, warmup=warmup, max_consecutive=None
        )
    warmup = min(GENERAL_WARMUP, WARMUP_SHARE / speedup) if request.warmup is None else request.warmup
    config = replace(plain, warmup=warmup, proxy=proxy)
    _check_reachable(speedup, USUAL_STEPS, config, len(transformers))
    schedule = replace(general_schedule(speedup, warmup_steps(USUAL_STEPS, warmup)), boundary=boundary_of(pipe))
    if request.max_error is not None:
        return replace(config, policy=Online(request.max_error, None, schedule))
    if request.policy == PROXY:
        return replace(config, policy=ProxyThreshold(schedule), max_consecutive=None)
    return replace(config, policy=schedule)


def documented_proxy(family: Family) -> str:
    """The first of `DOCUMENTED_PROXIES` that a family offers."""
    offered = proxies_of(family)
    return next(name for name in DOCUMENTED_PROXIES if name in offered)


def schedule_for(
    profile: Profile, target: Target, speedup: float, fewest: int = 0, boundary: float | None = None
) -> Schedule:
    """The schedule of a profile for a speedup, with `Schedule.fewest_steps` and `Schedule.boundary`."""
    recipe, planned = profile.recipe, profile.conditions.sigmas
    return Schedule(speedup, target.sigmas, recipe.error_map, recipe.cumulative_distance, fewest, boundary, planned)


def proxy_policy(profile: Profile, speedup: float, fewest: int = 0, boundary: float | None = None) -> ProxyThreshold:
    """The policy "proxy" for a speedup, with the threshold of the profile's nearest target, or 1 without one.

    If reused steps run blocks to read the proxy, fewer full steps are planned, so that `speedup` counts these blocks.
    """
    full = full_speedup(speedup, profile.recipe.proxy_share)
    schedule = schedule_for(profile, profile.target_for(full), full, fewest, boundary)
    threshold = profile.target_for(speedup).threshold or 1.0
    return ProxyThreshold(schedule, threshold, deviation_weight=profile.recipe.deviation_weight)


def _by_threshold(
    request: Request, profile: Profile | None, missing: str, family: Family, speedup: float | None
) -> Settings:
    """Settings for `threshold`, or for the recipe of arXiv 2512.03451, whose threshold a calibration can give, too.

    The recipe repeats the residual of the last full step, uncorrected.
    """
    as_published = GalaxyDiTConfig(reuse="residual", order=0, correction=False)
    own = GalaxyDiTConfig() if profile is None else _predicting_as(profile.recipe)
    config = replace(
        as_published if request.policy == PAPER else own,
        proxy=request.proxy or (profile.recipe.proxy if profile else documented_proxy(family)),
        warmup=PAPER_WARMUP if request.warmup is None else request.warmup,
        max_consecutive=None,
    )
    if request.threshold is not None:
        return Settings(replace(config, policy=Threshold(request.threshold)))
    curve = profile.recipe.cumulative_distance if profile and profile.recipe.proxy == config.proxy else None
    if profile is None or curve is None or speedup is None:
        why = missing or f"the profile holds no distances of the proxy {config.proxy}"
        cure = "pass for example threshold=0.1, or run `galaxydit calibrate`"
        raise refusal("policy", PAPER, f"a threshold too, because {why}", cure)
    _check_reachable(speedup, profile.conditions.steps, config, 1)
    distances = [after - before for before, after in pairwise([0.0, *map(curve, profile.conditions.sigmas)])]
    full = full_step_count(len(distances), full_speedup(speedup, profile.recipe.proxy_share))
    return Settings(replace(config, policy=Threshold(threshold_for(distances, full, config.limits))), profile)


def _with_profile(
    pipe: Any, request: Request, profile: Profile, transformers: Sequence[nn.Module], speedup: float | None
) -> Settings:
    recipe = profile.recipe
    reads_own_proxy = request.proxy in (None, recipe.proxy)
    proxy = request.proxy or recipe.proxy
    config = replace(_predicting_as(recipe), proxy=proxy)
    if speedup is None:
        assert request.max_error is not None
        warmup = PAPER_WARMUP if request.warmup is None else request.warmup
        policy = Online(request.max_error, recipe.error_map if reads_own_proxy else None, None)
        return Settings(replace(config, policy=policy, warmup=warmup, max_consecutive=None), profile)
    target = profile.target_for(speedup)
    warmup = target.warmup if request.warmup is None else request.warmup
    config = replace(config, warmup=warmup, max_consecutive=target.max_consecutive)
    _check_reachable(speedup, profile.conditions.steps or USUAL_STEPS, config, len(transformers))
    fewest, boundary = fewest_steps(profile) if request.spares_short else 0, boundary_of(pipe)
    schedule = schedule_for(profile, target, speedup, fewest, boundary)
    notes: tuple[str, ...] = ()
    warned: tuple[str, ...] = ()
    verified = profile.evidence.verified_prompts
    if profile.evidence.recorded is not None and not verified:
        notes = (f"profile {profile.name} rests on {profile.basis}; `galaxydit calibrate --budget full` verifies it",)
    if speedup > profile.fastest:
        done = f"{profile.fastest:g} that profile {profile.name} was {'verified' if verified else 'planned'} for"
        warned = (f"speedup {speedup:g} is beyond the {done}",)
    if request.max_error is not None:
        error_map = recipe.error_map if reads_own_proxy else None
        return Settings(replace(config, policy=Online(request.max_error, error_map, schedule)), profile, notes, warned)
    word = target.policy if request.policy == AUTO else request.policy
    if word != PROXY:
        return Settings(replace(config, policy=schedule), profile, notes, warned)
    if not reads_own_proxy:
        unknown = ProxyThreshold(replace(schedule, error_map=None, cumulative_distance=None))
        note = f"the threshold of the proxy {proxy} is learned during the generation, because no calibration solved it"
        return Settings(replace(config, policy=unknown, max_consecutive=None), profile, (*notes, note), warned)
    config = replace(config, policy=proxy_policy(profile, speedup, fewest, boundary), max_consecutive=None)
    return Settings(config, profile, notes, warned)


def _predicting_as(recipe: Recipe) -> GalaxyDiTConfig:
    """The default configuration with the prediction, correction and reuse of a recipe."""
    return GalaxyDiTConfig(
        order=recipe.order,
        slope=recipe.slope,
        largest_ahead=recipe.largest_ahead,
        correction_share=recipe.correction_share,
        reuse=recipe.reuse,
    )


def _check_reachable(speedup: float, steps: int, config: GalaxyDiTConfig, transformers: int) -> None:
    """Raise GalaxyDiTError if a speedup leaves fewer full steps than limits and transformers require."""
    least = min(steps, max(2, warmup_steps(steps, config.warmup) + config.keep_last) + transformers - 1)
    if round(steps / speedup) < least:
        largest = max(1.0, math.floor(100 * steps / least) / 100)
        expected = f"at most {largest:g}, because no plan computes fewer than {least} of {steps} steps"
        raise refusal("speedup", speedup, expected, f"pass for example speedup={min(largest, DEFAULT_SPEEDUP):g}")


def _profile_of(transformers: Sequence[nn.Module], given: Profile | str | Path | None) -> tuple[Profile | None, str]:
    """`(profile, "")` of the given or shipped profile, or `(None, reason)`; refuses one of another model."""
    if given is None:
        return find_profile(*transformers)
    profile = given if isinstance(given, Profile) else load_profile(given)
    mismatch = profile_mismatch(profile, transformers)
    if mismatch is not None:
        raise GalaxyDiTError(
            f"profile={profile.name!r} does not belong to this model: {mismatch.text}",
            "run `galaxydit calibrate` for this model, or leave profile out for the general schedule",
        )
    return profile, ""
