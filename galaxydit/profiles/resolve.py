"""Turn the request of a user and the profile of the model into a configuration.

A schedule plans which steps are computed (full steps); the general schedule is for models without a profile. A proxy
is a cheap tensor whose change shows how much the transformer's output changes. The recipe of a profile is the settings
that the profile prescribes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from galaxydit.config import GalaxyDiTConfig
from galaxydit.errors import GalaxyDiTError, refusal
from galaxydit.families import Family, family_of, transformers_of
from galaxydit.outcome import Goal, VerifiedPsnr
from galaxydit.policies.general_schedule import USUAL_STEPS, general_schedule
from galaxydit.policies.online import Online
from galaxydit.policies.policy import warmup_steps
from galaxydit.policies.proxy_threshold import ProxyThreshold, full_speedup
from galaxydit.policies.schedule import Schedule
from galaxydit.policies.threshold import Threshold
from galaxydit.profiles.conditions import boundary_of, fewest_steps
from galaxydit.profiles.fingerprint import is_shared, profile_mismatch
from galaxydit.profiles.recipe import Recipe, Target
from galaxydit.profiles.registry import find_profile, load_profile
from galaxydit.profiles.schema import Profile
from galaxydit.profiles.verified import fastest_verified, verified_at
from galaxydit.proxies import proxies_of
from galaxydit.request import AUTO, DEFAULT_SPEEDUP, LOSSLESS, PROXY, Request

WARMUP_SHARE = 0.4  # largest share of the full steps of a general schedule that its warm-up takes
PAPER_WARMUP = 0.2  # share of first steps that arXiv 2512.03451 never reuses
DOCUMENTED_PROXIES = ("filtered_latent", "modulated_input", "block_residual", "noisy_latent")
"""Proxies for models that nobody calibrated, by falling published quality. On Wan2.1-T2V-1.3B, with half of the steps
computed, the PSNR of filtered_latent is 5.8 dB above that of modulated_input (arXiv 2602.18993)."""


@dataclass(frozen=True)
class Settings:
    """The configuration that a request leads to, and remarks for reports.

    Attributes:
        config: the configuration.
        profile: the profile that `config` follows; None without a profile.
        notes: sentences to add to every report.
        warnings: sentences to add to every report and to raise as Python warnings.
        goal: the request, for the first line of the report.
    """

    config: GalaxyDiTConfig
    profile: Profile | None = None
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    goal: Goal | None = None


def resolve(pipe: Any, request: Request) -> Settings:
    """The settings of a pipeline or a transformer for a request: the configuration, its profile, and texts for reports.

    The request asks for a speedup, a largest expected error, a threshold of the proxy, a PSNR or a word for quality.
    Raises GalaxyDiTError for a profile of another model, for a speedup that cannot be reached, and for a PSNR that no
    verified speedup reached.
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
        verified = verified_at(profile, speedup, request.policy) if own_proxy else None
    settings = _settings(pipe, request, profile, missing, speedup)
    psnr = None
    if verified is not None and verified.psnr_db is not None:
        psnr = VerifiedPsnr(verified.psnr_db, verified.psnr_low, verified.psnr_high, verified.prompts)
    return replace(settings, goal=Goal(text, speedup, psnr, request.min_psnr))


def _settings(pipe: Any, request: Request, profile: Profile | None, missing: str, speedup: float | None) -> Settings:
    """The configuration for a request, with the profile that it follows and with notes and warnings for reports.

    The field `goal` is None; `resolve` sets it. `missing` says why `profile` is None; it is empty otherwise. `speedup`
    is the speedup to plan for; None if the request sets only a `max_error` or a `threshold`.
    """
    transformers = list(transformers_of(pipe).values())
    if request.quality == LOSSLESS:
        request = replace(request, quality=None, threshold=0.0)
    if request.threshold is not None:
        return _by_threshold(request, profile, family_of(transformers[0]))
    if profile is None:
        config = without_profile(pipe, request)
        source = {Schedule: "a general schedule", Online: "errors learned during the generation"}.get(
            type(config.policy), f"the proxy {config.proxy} with a threshold learned during the generation"
        )
        note = f"{missing}: full steps come from {source}; `galaxydit calibrate` measures a profile"
        return Settings(config, None, (note,))
    return _with_profile(pipe, request, profile, transformers, speedup)


def without_profile(pipe: Any, request: Request) -> GalaxyDiTConfig:
    """The configuration for a request without `threshold` and `min_psnr` if no profile is used.

    For a speedup, the general schedule plans the full steps. With `policy="proxy"`, a step is computed earlier than
    planned where the proxy moves faster than its running mean, and later where it moves slower (`ProxyThreshold`). With
    `max_error`, the policy `Online` computes the steps whose expected error is above `max_error`, and the planned full
    steps if there is a speedup; it learns the ratio of error to proxy distance during the generation. The proxy is that
    of the request, else `documented_proxy`, that of the best published quality. By default, the warm-up is the share
    0.2 of the steps; for a speedup above 2, it is 0.4 / speedup. Raises GalaxyDiTError for a speedup that cannot be
    reached.
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
    warmup = min(plain.warmup, WARMUP_SHARE / speedup) if request.warmup is None else request.warmup
    config = replace(plain, warmup=warmup, proxy=proxy)
    _check_reachable(speedup, USUAL_STEPS, config, len(transformers))
    schedule = replace(general_schedule(speedup, warmup_steps(USUAL_STEPS, warmup)), boundary=boundary_of(pipe))
    if request.max_error is not None:
        return replace(config, policy=Online(request.max_error, None, schedule))
    if request.policy == PROXY:
        return replace(config, policy=ProxyThreshold(schedule), max_consecutive=None)
    return replace(config, policy=schedule)


def documented_proxy(family: Family) -> str:
    """Name of the proxy of the best published quality (the first of `DOCUMENTED_PROXIES`) that a family offers."""
    offered = proxies_of(family)
    return next(name for name in DOCUMENTED_PROXIES if name in offered)


def schedule_for(
    profile: Profile, target: Target, speedup: float, fewest: int = 0, boundary: float | None = None
) -> Schedule:
    """The schedule of a profile for a speedup, from the planned full steps of `target`, one of the profile's targets.

    Generations of fewer than `fewest` steps are computed in full. `boundary` is the noise level below which a second
    transformer computes; None without one. Raises GalaxyDiTError for a speedup below 1.
    """
    recipe, planned = profile.recipe, profile.conditions.sigmas
    return Schedule(speedup, target.sigmas, recipe.error_map, recipe.cumulative_distance, fewest, boundary, planned)


def proxy_policy(profile: Profile, speedup: float, fewest: int = 0, boundary: float | None = None) -> ProxyThreshold:
    """The policy "proxy" for a speedup: a schedule of the profile, and a threshold.

    The policy reuses a step while the proxy has changed since the last full step by less than the threshold times a
    number that the full steps of the schedule determine (`ProxyThreshold`). The threshold is that of the profile's
    target (settings for one speedup) nearest to `speedup`, or 1 if this target has none, as in a published profile. If
    reused steps run blocks to read the proxy, the schedule is planned for a larger speedup, so that `speedup` is
    reached with these blocks counted (`full_speedup`).

    Generations of fewer than `fewest` steps are computed in full. `boundary` is the noise level below which a second
    transformer computes; None without one.
    """
    full = full_speedup(speedup, profile.recipe.proxy_share)
    schedule = schedule_for(profile, profile.target_for(full), full, fewest, boundary)
    threshold = profile.target_for(speedup).threshold or 1.0
    return ProxyThreshold(schedule, threshold, deviation_weight=profile.recipe.deviation_weight)


def _by_threshold(request: Request, profile: Profile | None, family: Family) -> Settings:
    """The settings for a threshold given by hand: the rule of arXiv 2512.03451, without a cap on consecutive reuse.

    The proxy is that of the request, else that of a profile with a ranking of proxies, else `documented_proxy`, the
    family's proxy of the best published quality. A profile, if there is one, also sets how reused steps are predicted,
    and which share of the error of reused steps the next full step compensates.
    """
    assert request.threshold is not None
    plain = GalaxyDiTConfig() if profile is None else _predicting_as(profile.recipe)
    known = None if profile is None or not profile.evidence.ranking else profile.recipe.proxy
    config = replace(
        plain,
        policy=Threshold(request.threshold),
        proxy=request.proxy or known or documented_proxy(family),
        warmup=PAPER_WARMUP if request.warmup is None else request.warmup,
        max_consecutive=None,
    )
    return Settings(config)


def _with_profile(
    pipe: Any, request: Request, profile: Profile, transformers: Sequence[nn.Module], speedup: float | None
) -> Settings:
    recipe = profile.recipe
    reads_own_proxy = request.proxy in (None, recipe.proxy)
    proxy = request.proxy or recipe.proxy
    if profile.kind == "published" and request.proxy is None:
        proxy = documented_proxy(family_of(transformers[0]))
        reads_own_proxy = False
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
    notes, warned = _static_notes(profile, transformers), _warnings(profile, speedup)
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
    """The default configuration, but with the settings of prediction, correction and reuse of a profile's recipe."""
    return GalaxyDiTConfig(
        order=recipe.order,
        slope=recipe.slope,
        largest_ahead=recipe.largest_ahead,
        correction_share=recipe.correction_share,
        reuse=recipe.reuse,
    )


def _check_reachable(speedup: float, steps: int, config: GalaxyDiTConfig, transformers: int) -> None:
    """Raise GalaxyDiTError if a speedup leaves fewer full steps of `steps` than are always computed: those that the
    limits of `config` force, and the first step of each of the `transformers` (their number).
    """
    least = min(steps, max(2, warmup_steps(steps, config.warmup) + config.keep_last) + transformers - 1)
    if round(steps / speedup) < least:
        largest = max(1.0, math.floor(100 * steps / least) / 100)
        expected = f"at most {largest:g}, because no plan computes fewer than {least} of {steps} steps"
        raise refusal("speedup", speedup, expected, f"pass for example speedup={min(largest, DEFAULT_SPEEDUP):g}")


def _profile_of(transformers: Sequence[nn.Module], given: Profile | str | Path | None) -> tuple[Profile | None, str]:
    """`(profile, "")` with the profile that was given (itself, by name or by path) or else the shipped profile of the
    model, or `(None, reason)` if there is none. Raises GalaxyDiTError for a given profile of another model.
    """
    if given is None:
        return find_profile(*transformers)
    profile = given if isinstance(given, Profile) else load_profile(given)
    mismatch = profile_mismatch(profile, transformers)
    if mismatch is not None:
        raise GalaxyDiTError(
            f"profile={profile.name!r} does not belong to this model: {mismatch}",
            "run `galaxydit calibrate` for this model, or leave profile out for the general schedule",
        )
    return profile, ""


def _static_notes(profile: Profile, transformers: Sequence[nn.Module]) -> tuple[str, ...]:
    """Notes for the report of every generation: that the profile is a guess for the model of these transformers, as its
    measurements are of another model, and that it was planned from published measurements. Empty for a profile that a
    calibration measured on this model.
    """
    notes = []
    if is_shared(profile, transformers):
        notes.append(f"profile {profile.name} is a guess for this model, for which no measurements are published")
    if profile.kind == "published":
        notes.append(
            f"profile {profile.name} was planned from published measurements ({profile.source}): "
            f"{profile.evidence.reason}; `galaxydit calibrate` measures a profile"
        )
    return tuple(notes)


def _warnings(profile: Profile, speedup: float) -> tuple[str, ...]:
    """One text, to add to every report and to raise as a warning, if the speedup is beyond the fastest of the profile;
    else empty.
    """
    if speedup <= profile.fastest:
        return ()
    done = "planned" if profile.kind == "published" else "verified"
    return (f"speedup {speedup:g} is beyond the {profile.fastest:g} that profile {profile.name} was {done} for",)
