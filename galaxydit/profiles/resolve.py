"""From `speedup`, `max_error` and a profile to settings for the controller, and what to remark where a generation is
unlike the calibration.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from galaxydit.config import Config
from galaxydit.errors import GalaxyDiTError
from galaxydit.families import SEPARATE, blocks_of, family_of
from galaxydit.fingerprint import adapters_of, why_other_model
from galaxydit.plan import Plan, full_share
from galaxydit.profile import Profile, Target
from galaxydit.profile_store import find_profile, get_profile
from galaxydit.proxies import PROXIES
from galaxydit.session import Generation

DEFAULT_SPEEDUP = 2.0
SIGMA_TOLERANCE = 1e-3


@dataclass(frozen=True)
class Planned:
    """Settings, and a function from a generation to the remarks that belong into its report."""

    config: Config
    profile: Profile | None
    remarks: Callable[[Generation], list[str]]


def plan_settings(
    pipe: Any,
    transformer: nn.Module,
    config: Config,
    *,
    speedup: float | None = None,
    max_error: float | None = None,
    profile: Profile | str | Path | None = None,
    threshold: float | None = None,
    proxy: str | None = None,
) -> Planned:
    """The settings that reach `speedup` or stay below `max_error` (or `threshold` on the profile's proxy).

    Without a profile for this model the controller learns online how large errors are.
    Raises GalaxyDiTError for a profile of another model and for a speedup that cannot be reached.
    """
    if threshold is not None and (speedup is not None or max_error is not None):
        raise GalaxyDiTError("threshold is given together with speedup or max_error; leave one of them out")
    if speedup is None and max_error is None and threshold is None:
        speedup = DEFAULT_SPEEDUP
    if profile is None and isinstance(getattr(pipe, "transformer_2", None), nn.Module):
        found, why = None, "no profile covers pipelines with two denoising transformers"
    else:
        found, why = _resolve(transformer, profile)
    if found is not None and profile is None and proxy is not None and proxy != found.proxy:
        why, found = f"the profile of this model is for the proxy {found.proxy}, and {proxy} was asked for", None
    if found is None:
        plan = Plan(speedup=speedup, max_error=max_error, reused_cost=reused_cost(transformer, config))
        text = f"{why}: errors are learned online from the warm-up steps on; `galaxydit calibrate` measures a profile"
        return Planned(replace(_roomy(config, speedup), plan=plan), None, lambda generation: [text])
    target = found.target_for(_sought(found, speedup, max_error))
    settings = found.config_for(config, target)
    if threshold is not None:
        settings = replace(settings, threshold=threshold)
    else:
        settings = replace(settings, plan=plan_of(found, target, speedup, max_error))
    return Planned(settings, found, lambda generation: remarks(found, pipe, transformer, generation, speedup))


def plan_of(profile: Profile, target: Target, speedup: float | None, max_error: float | None = None) -> Plan:
    """The plan that a profile makes for one of its targets; raises GalaxyDiTError where it cannot be reached."""
    return Plan(
        speedup=speedup,
        max_error=max_error,
        error_map=profile.error_map,
        sigmas=profile.conditions.sigmas,
        clock=profile.clock,
        schedule=target.schedule,
        weights=target.weights,
        follow=target.follow,
        decay=target.decay,
        reused_cost=profile.reused_cost,
    )


def _sought(profile: Profile, speedup: float | None, max_error: float | None) -> float:
    """The speedup whose plan has the right number of full steps: with `max_error` reused steps pay for the proxy."""
    if speedup is None:
        return profile.targets[0].speedup
    if max_error is None or speedup * profile.reused_cost >= 1:
        return speedup
    return 1 / full_share(speedup, profile.reused_cost)


def _roomy(config: Config, speedup: float | None) -> Config:
    """Settings with room for the budget: warm-up takes 0.4 of its full steps at most, the cap twice the mean gap."""
    if speedup is None:
        return config
    cap = None if config.max_consecutive is None else max(config.max_consecutive, math.ceil(2 * speedup))
    return replace(config, warmup=min(config.warmup, 0.4 / speedup), max_consecutive=cap)


def reused_cost(transformer: nn.Module, config: Config) -> float:
    """Block evaluations of a reused step / those of a full one: one branch reads the proxy, all branches reuse."""
    family = family_of(transformer)
    branches = 2 if family.branches == SEPARATE else 1
    return PROXIES[config.proxy].cost / (branches * len(blocks_of(transformer, family)))


def _resolve(transformer: nn.Module, profile: Profile | str | Path | None) -> tuple[Profile | None, str]:
    if profile is None:
        return find_profile(transformer)
    found = profile if isinstance(profile, Profile) else get_profile(profile)
    why = why_other_model(found.model, transformer)
    if why is not None:
        raise GalaxyDiTError(
            f"profile={found.name!r} does not belong to this model: {why}; run `galaxydit calibrate` for this model, "
            "or leave profile out to learn online"
        )
    return found, ""


def remarks(
    profile: Profile, pipe: Any, transformer: nn.Module, generation: Generation, speedup: float | None
) -> list[str]:
    """How a generation differs from the calibration, and what is made of it."""
    said, conditions = [], profile.conditions
    if profile.kind == "starter":
        said.append(
            f"profile {profile.name} is a starter from published constants ({profile.source}), not measured: the "
            "speedup is met, the choice of steps is a guess until `galaxydit calibrate` has run"
        )
    fastest = profile.targets[-1].speedup
    if speedup is not None and speedup > fastest:
        said.append(f"speedup {speedup:g} is beyond the {fastest:g} that profile {profile.name} was verified for")
    if conditions.sigmas:
        said += _sigma_remarks(profile, generation)
    guidance = getattr(pipe, "_guidance_scale", None)
    if None not in (guidance, conditions.guidance_scale) and guidance != conditions.guidance_scale:
        said.append(
            f"guidance scale is {guidance:g}, and the profile was measured at {conditions.guidance_scale:g}: expected "
            "errors are off by an unknown factor, the speedup is met all the same"
        )
    scheduler = type(getattr(pipe, "scheduler", None)).__name__
    if scheduler not in (conditions.scheduler, "NoneType") and conditions.scheduler:
        said.append(f"scheduler is {scheduler}, and the profile was measured with {conditions.scheduler}")
    adapters = adapters_of(transformer)
    if adapters != profile.model.adapters:
        said.append(
            f"adapters {list(adapters)} are active, and the profile was measured with {list(profile.model.adapters)}: "
            "calibrate again with them"
        )
    return said


def _sigma_remarks(profile: Profile, generation: Generation) -> list[str]:
    known = profile.conditions.sigmas
    if generation.steps != len(known):
        return [
            f"{generation.steps} steps, and the profile was measured with {len(known)}: its curves are interpolated in "
            "sigma"
        ]
    if generation.sigmas is None:
        return ["the scheduler tells no sigmas: even steps are assumed"]
    apart = max(abs(a - b) for a, b in zip(generation.sigmas, known, strict=True))
    if apart > SIGMA_TOLERANCE:
        return [
            f"sigmas differ from the calibrated ones by up to {apart:.3f} (another flow shift): the profile's "
            "curves are interpolated in sigma"
        ]
    return []
