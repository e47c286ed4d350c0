"""From `speedup`, `max_error` and a profile to a configuration, and how a generation differs from the calibration."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from galaxydit.adapters import adapters_of
from galaxydit.config import GalaxyDiTConfig
from galaxydit.errors import GalaxyDiTError, refusal
from galaxydit.policies.budget import check_request
from galaxydit.policies.error_map import ErrorMap
from galaxydit.policies.general_schedule import USUAL_STEPS, general_schedule
from galaxydit.policies.online import Online
from galaxydit.policies.policy import FEW_STEPS, warmup_steps
from galaxydit.policies.schedule import Schedule
from galaxydit.policies.threshold import Threshold
from galaxydit.profiles.fingerprint import profile_mismatch
from galaxydit.profiles.registry import find_profile, load_profile
from galaxydit.profiles.schema import Profile, Target
from galaxydit.runtime.session import Source

DEFAULT_SPEEDUP = 2.0
WARMUP_SHARE = 0.4
SIGMA_TOLERANCE = 1e-3
SERVED_SHARE = 0.28
"""Of the steps of a calibration: by default a plan serves generations of at least so many. wan-tiny's is for
50; at a speedup of 2 it is 6.5 dB ahead of half the steps without reuse at 14 steps, 0.6 dB at 10 (4 captions)."""


def differences(
    profile: Profile, short_in_full: bool, steps: int, sigmas: tuple[float, ...] | None, source: Source
) -> list[str]:
    """How a generation differs from what its profile was measured under, as sentences for the report.

    With `short_in_full`, generations of fewer steps than the profile serves are computed in full.
    """
    conditions = profile.conditions
    found = _sigma_differences(conditions.sigmas, steps, sigmas) if conditions.sigmas else []
    if found and profile.kind == "starter":
        found = [
            f"steps or flow shift differ from those of the published measurements ({conditions.steps} steps, shift "
            f"{conditions.flow_shift}): the planned steps keep their places among all steps"
        ]
    if steps <= FEW_STEPS:
        found = []  # all steps are computed, and the report says so
    elif steps < fewest_steps(profile):
        done = "all are computed by default" if short_in_full else "reuse can be worse than computing fewer steps"
        found = [
            f"{steps} steps are too few for the profile, which was measured with {conditions.steps}, so {done}: take "
            f"fewer steps to be faster, or `galaxydit calibrate --steps {steps}`"
        ]
    for name in ("guidance_scale", "guidance_scale_2"):
        guidance, known = getattr(source.pipe, f"_{name}", None), getattr(conditions, name)
        if guidance is not None and known not in (None, guidance):
            how = "planned from measurements" if profile.kind == "starter" else "measured"
            found.append(
                f"{name}={guidance:g}, and the profile was {how} at {known:g}: the speedup is met all the same, the "
                "quality is unknown"
            )
    boundary = boundary_of(source.pipe)
    if boundary != conditions.boundary and profile.second_model is not None:
        found.append(
            f"the second transformer takes over at a noise level of {boundary}, and the profile was measured with "
            f"{conditions.boundary}: its steps were chosen for that"
        )
    scheduler = type(source.scheduler).__name__
    if scheduler not in (conditions.scheduler, "NoneType") and conditions.scheduler:
        found.append(f"scheduler is {scheduler}, and the profile was measured with {conditions.scheduler}")
    adapters = adapters_of(source.transformer)
    if adapters != profile.model.adapters:
        found.append(
            f"adapters {list(adapters)} are active, and the profile was measured with "
            f"{list(profile.model.adapters)}: calibrate again with them"
        )
    return found


def fewest_steps(profile: Profile) -> int:
    """The fewest steps of a generation that a profile serves."""
    return math.ceil(round(SERVED_SHARE * profile.conditions.steps, 9))


def find_settings(
    pipe: Any,
    transformers: Sequence[nn.Module],
    config: GalaxyDiTConfig,
    *,
    speedup: float | None = None,
    max_error: float | None = None,
    profile: Profile | str | Path | None = None,
    threshold: float | None = None,
    proxy: str | None = None,
    warmup: float | None = None,
) -> tuple[GalaxyDiTConfig, Profile | None, tuple[str, ...]]:
    """The configuration of a pipeline with these transformers for a speedup or an error limit (or a threshold on the
    profile's proxy), the profile that it comes from, and remarks for the reports.

    `warmup` replaces the recipe's. Without a profile of this model, the policies are those of
    `settings_without_profile`. Raises GalaxyDiTError for a profile of another model and for a speedup that cannot be
    reached.
    """
    check_request(speedup, max_error, threshold)
    by_default = speedup is None and max_error is None and threshold is None
    if by_default:
        speedup = DEFAULT_SPEEDUP
    found, missing = _resolve(transformers, profile)
    if found is not None and profile is None and proxy not in (None, found.recipe.proxy):
        missing = f"the profile of this model is for the proxy {found.recipe.proxy}, and {proxy} was asked for"
        found = None
    if found is None:
        used = [] if speedup is None else ["a general schedule"]
        used += [] if max_error is None else ["errors learned on the way"]
        source = f"the steps to compute come from {' and '.join(used)}"
        settings = settings_without_profile(pipe, len(transformers), config, speedup, max_error, warmup)
        return settings, None, (f"{missing}: {source}; `galaxydit calibrate` measures a profile",)
    recipe = found.recipe
    target = found.target_for(recipe.targets[0].speedup if speedup is None else speedup)
    settings = replace(
        config,
        proxy=recipe.proxy,
        order=recipe.order,
        reuse=recipe.reuse,
        warmup=target.warmup if warmup is None else warmup,
        max_consecutive=target.max_consecutive,
    )
    _check_reachable(speedup, found.conditions.steps or USUAL_STEPS, settings, len(transformers))
    schedule = None
    if speedup is not None:
        fewest = fewest_steps(found) if by_default else 0
        schedule = schedule_for(found, target, speedup, fewest, boundary_of(pipe))
    policy = Threshold(threshold) if threshold is not None else policy_of(schedule, max_error, recipe.error_map)
    return replace(settings, policy=policy), found, _static_notes(found, speedup)


def settings_without_profile(
    pipe: Any,
    transformers: int,
    config: GalaxyDiTConfig,
    speedup: float | None,
    max_error: float | None = None,
    warmup: float | None = None,
) -> GalaxyDiTConfig:
    """`config` with a general schedule for the speedup, and with `Online`, which learns errors, for a limit of them.

    Without `warmup`, that of `config` takes at most 0.4 of the budget. Raises GalaxyDiTError for a speedup that cannot
    be reached with this number of transformers.
    """
    if speedup is None:
        return replace(config, policy=policy_of(None, max_error, None))
    warmup = min(config.warmup, WARMUP_SHARE / speedup) if warmup is None else warmup
    settings = replace(config, warmup=warmup)
    _check_reachable(speedup, USUAL_STEPS, settings, transformers)
    schedule = general_schedule(speedup, warmup_steps(USUAL_STEPS, settings.warmup))
    policy = policy_of(replace(schedule, boundary=boundary_of(pipe)), max_error, None)
    return replace(settings, policy=policy)


def policy_of(schedule: Schedule | None, max_error: float | None, error_map: ErrorMap | None) -> Schedule | Online:
    """The schedule, or `Online` where there is an error limit; one of the two must be given."""
    if max_error is not None:
        return Online(max_error, error_map, schedule)
    assert schedule is not None
    return schedule


def schedule_for(
    profile: Profile, target: Target, speedup: float, fewest_steps: int = 0, boundary: float | None = None
) -> Schedule:
    """The schedule of a recipe for one target. Raises GalaxyDiTError for a speedup out of range."""
    recipe, planned = profile.recipe, profile.conditions.sigmas
    return Schedule(
        speedup, target.sigmas, recipe.error_map, recipe.cumulative_distance, fewest_steps, boundary, planned
    )


def boundary_of(pipe: Any) -> float | None:
    """The noise level below which the second transformer of a pipeline computes; None without one."""
    return getattr(getattr(pipe, "config", None), "boundary_ratio", None)


def _check_reachable(speedup: float | None, steps: int, config: GalaxyDiTConfig, transformers: int) -> None:
    """Raise GalaxyDiTError for a speedup at which fewer steps would be left than are always computed: those of the
    limits, and the first one of each transformer.
    """
    least = min(steps, max(2, warmup_steps(steps, config.warmup) + config.keep_last) + transformers - 1)
    if speedup is not None and round(steps / speedup) < least:
        largest = max(1.0, math.floor(100 * steps / least) / 100)
        expected = f"at most {largest:g}, because no plan computes fewer than {least} of {steps} steps"
        raise refusal("speedup", speedup, expected, f"pass for example speedup={min(largest, DEFAULT_SPEEDUP):g}")


def _resolve(transformers: Sequence[nn.Module], profile: Profile | str | Path | None) -> tuple[Profile | None, str]:
    if profile is None:
        return find_profile(*transformers)
    found = profile if isinstance(profile, Profile) else load_profile(profile)
    mismatch = profile_mismatch(found, transformers)
    if mismatch is not None:
        raise GalaxyDiTError(
            f"profile={found.name!r} does not belong to this model: {mismatch}; run `galaxydit calibrate` for this "
            "model, or leave profile out for the general schedule"
        )
    return found, ""


def _static_notes(profile: Profile, speedup: float | None) -> tuple[str, ...]:
    """Remarks that hold for every generation."""
    notes = []
    if profile.kind == "starter":
        notes.append(
            f"profile {profile.name} is a starter from published measurements ({profile.source}): "
            f"{profile.evidence.reason}; `galaxydit calibrate` measures a profile"
        )
    if speedup is not None and speedup > profile.fastest:
        done = "planned" if profile.kind == "starter" else "verified"
        served = f"{profile.fastest:g} that profile {profile.name} was {done} for"
        notes.append(f"speedup {speedup:g} is beyond the {served}")
    return tuple(notes)


def _sigma_differences(known: tuple[float, ...], steps: int, sigmas: tuple[float, ...] | None) -> list[str]:
    if steps != len(known):
        return [
            f"{steps} steps, and the profile was measured with {len(known)}: its planned steps keep their places among "
            "all steps, its curves are interpolated in sigma"
        ]
    if sigmas is None:
        return ["the scheduler gives no sigmas: even steps are assumed"]
    largest = max(abs(a - b) for a, b in zip(sigmas, known, strict=True))
    if largest > SIGMA_TOLERANCE:
        return [
            f"sigmas differ from the calibrated ones by up to {largest:.3f} (another flow shift): the profile's "
            "planned steps keep their places among all steps, its curves are interpolated in sigma"
        ]
    return []
