"""What a request leads to: the configuration of the plugin, and what reports say about it."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from torch import nn

from galaxydit.config import GalaxyDiTConfig
from galaxydit.errors import GalaxyDiTError, NoEffectWarning, refusal
from galaxydit.outcome import Goal
from galaxydit.policies.general_schedule import GENERAL_FASTEST, GeneralSchedule
from galaxydit.policies.online import Online
from galaxydit.policies.proxy_threshold import ProxyThreshold
from galaxydit.policies.schedule import Schedule
from galaxydit.policies.threshold import Threshold
from galaxydit.profiles.changed_conditions import notes_and_warnings
from galaxydit.profiles.configure import configure
from galaxydit.profiles.fingerprint import profile_mismatch
from galaxydit.profiles.profile_registry import find_profile, load_profile
from galaxydit.profiles.schema import Profile, fastest_verified
from galaxydit.proxies import PROXIES, Proxy, ProxyName, check_proxy
from galaxydit.request import LOSSLESS, Request
from galaxydit.runtime.generation import Terms
from galaxydit.runtime.recognition import transformers_of


@dataclass(frozen=True)
class Settings:
    """The configuration that a request leads to, with texts for every report; `warnings` are raised, too."""

    config: GalaxyDiTConfig
    profile: Profile | None = None  # of `config`; reports say how a generation differs from its conditions
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    goal: Goal | None = None  # the request, such as a speedup; None for a `GalaxyDiTConfig` by hand
    given: Profile | None = None  # the profile, if the request named one

    def terms(self) -> Terms:
        """What a generation with these settings needs."""
        policy = self.config.policy
        schedule = policy.schedule if isinstance(policy, ProxyThreshold) else policy
        in_full = isinstance(schedule, Schedule) and schedule.fewest_steps > 0
        differences = None
        if self.profile is not None:
            differences = partial(notes_and_warnings, self.profile, in_full)
        return Terms(self.config, self.notes, self.warnings, differences, self.goal)


def settings_for(pipe: Any, request: Request, config: GalaxyDiTConfig | None) -> Settings:
    """The settings of a request or of `config`; warns of a threshold that reuses nothing. Raises GalaxyDiTError for
    both together, and the errors of `resolve`."""
    if config is not None and not isinstance(config, GalaxyDiTConfig):
        raise refusal("config", config, "a GalaxyDiTConfig", "pass for example GalaxyDiTConfig(Threshold(0.1))")
    if config is not None and request != Request():
        given = [field.name for field in fields(Request) if getattr(request, field.name) != field.default]
        raise GalaxyDiTError(f"config is given together with {', '.join(given)}", "pass either config or these")
    if isinstance(request.proxy, Proxy):
        if PROXIES.get(request.proxy.name) is request.proxy:  # a profile knows it by its name
            request = replace(request, proxy=cast(ProxyName, request.proxy.name))
    elif request.proxy is not None:
        check_proxy(request.proxy)
    settings = Settings(config) if config is not None else resolve(pipe, request)
    if settings.config.history_length == 0 and request.quality != LOSSLESS:
        warnings.warn("galaxydit: threshold=0 reuses nothing; raise it to go faster", NoEffectWarning, stacklevel=3)
    return settings


def resolve(pipe: Any, request: Request) -> Settings:
    """The settings of a pipeline or a transformer for a request.

    Raises GalaxyDiTError for a profile of another model, and for a speedup or PSNR that cannot be reached.
    """
    profile, missing = _profile_of(list(transformers_of(pipe).values()), request.profile)
    speedup = request.planned_speedup
    text = str(request)
    verified = None
    if request.min_psnr is not None:
        verified = fastest_verified(profile, missing, request.min_psnr, request.policy)
        speedup = verified.speedup
        text += f", so {speedup:g}x"
    elif profile is not None and speedup is not None and _is_as_verified(request, profile):
        verified = profile.verified_at(speedup, request.policy)
    config = configure(pipe, request, profile, speedup, missing)
    goal = Goal(text, speedup, verified, request.min_psnr)
    given = None if request.profile is None else profile
    if request.threshold is not None or request.quality == LOSSLESS:
        profile = None  # it chose no full steps
    notes, warned = _texts(config, profile, missing, speedup)
    return Settings(config, profile, notes, warned, goal, given)


def _is_as_verified(request: Request, profile: Profile) -> bool:
    """Whether the full steps are those of the profile's verifications."""
    if request.max_error is not None or request.warmup is not None:
        return False
    return request.proxy in (None, profile.recipe.proxy)


def _texts(
    config: GalaxyDiTConfig, profile: Profile | None, missing: str, speedup: float | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Notes and warnings on where full steps come from; `missing` says why `profile` is None."""
    policy = config.policy
    notes = []
    warned = []
    beyond = _beyond(profile, speedup) if speedup is not None else ""
    if beyond:
        warned.append(beyond)
    if isinstance(policy, Threshold):
        return (), tuple(warned)
    if profile is None:
        source = f"the proxy {config.watched.name} with a threshold learned during the generation"
        if isinstance(policy, GeneralSchedule):
            source = "a general schedule"
        elif isinstance(policy, Online):
            source = "errors learned during the generation"
        return (f"{missing}: full steps come from {source}; `galaxydit calibrate` measures a profile",), tuple(warned)
    if speedup is None:
        return (), ()
    verified = profile.evidence.verified_prompts
    if profile.evidence.recorded is not None and not verified:
        rests = f"profile {profile.name} rests on {profile.basis}"
        notes.append(f"{rests}; `galaxydit calibrate --budget full` verifies it")
    if isinstance(policy, ProxyThreshold) and policy.schedule.cumulative_distance is None:
        learned = f"the threshold of the proxy {config.watched.name} is learned during the generation"
        notes.append(f"{learned}, because no calibration solved it")
    return tuple(notes), tuple(warned)


def _beyond(profile: Profile | None, speedup: float) -> str:
    """Warning text of a speedup that nothing was measured for, else ""."""
    if profile is None:
        fastest = GENERAL_FASTEST
        done = "the general schedule was measured for"
    else:
        fastest = profile.fastest
        word = "verified" if profile.evidence.verified_prompts else "planned"
        done = f"profile {profile.name} was {word} for"
    if speedup <= fastest:
        return ""
    beyond = f"speedup {speedup:g} is beyond the {fastest:g} that {done}"
    return f"{beyond}: the quality is unknown there, and plain generations of fewer steps are safer"


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
