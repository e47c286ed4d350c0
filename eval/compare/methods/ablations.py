"""Ablations: the shipped default with one component removed or one added.

Two more are methods of their own: guidance alignment is `galaxydit paper` against `galaxydit paper branches alone`, and
the placement of full steps is `searched schedule` against `uniform skip order 1`.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from diffusers import DiffusionPipeline

from galaxydit import GalaxyDiTConfig
from galaxydit.eval.compare.compute_counter import only_transformer
from galaxydit.eval.compare.method import Attached, Method, Setting, geometric_grid
from galaxydit.eval.compare.methods.galaxydit_methods import AT_SPEEDUPS, accelerated, profile_identity
from galaxydit.eval.compare.registry import ABLATION
from galaxydit.eval.compare.rules.decision import ScheduleRule
from galaxydit.eval.compare.rules.rule_observer import under_rule
from galaxydit.policies.schedule import Schedule, place_full_steps
from galaxydit.profiles.registry import find_profile
from galaxydit.profiles.resolve import config_for, schedule_for
from galaxydit.profiles.schema import Profile

Change = Callable[[Profile, Setting], dict[str, Any]]
"""From the model's profile and a setting to the arguments of `galaxydit.accelerate`."""


def shipped(profile: Profile, speedup: float) -> GalaxyDiTConfig:
    """The configuration of `accelerate(pipe, speedup=...)`."""
    target = profile.target_for(speedup)
    return replace(config_for(profile, target), policy=schedule_for(profile, target, speedup))


def _shipped_with(**fields: Any) -> Change:
    """The shipped default with other fields of its configuration."""
    return lambda profile, setting: {"config": replace(shipped(profile, setting["speedup"]), **fields)}


CHANGES: dict[str, Change] = {
    "last full step repeated": _shipped_with(order=0),
    "residual reused": _shipped_with(reuse="residual"),
    "first fifth computed": _shipped_with(warmup=0.2),
    "expected error instead of a budget": lambda profile, setting: {"max_error": setting["max_error"]},
}
SETTINGS = {"expected error instead of a budget": [{"max_error": value} for value in geometric_grid(0.003, 1.0, 18)]}
"""Of the ablations that are not at speedups."""


def _profile_of(pipe: DiffusionPipeline) -> Profile:
    profile, why = find_profile(only_transformer(pipe))
    if profile is None:
        raise ValueError(
            f"profile=None is not allowed: expected the profile of this model, but {why}; run `galaxydit calibrate`"
        )
    return profile


def _ablation(name: str) -> Method:
    return Method(
        name,
        ABLATION,
        lambda steps: SETTINGS.get(name, AT_SPEEDUPS),
        lambda pipe, setting, calibration: accelerated(pipe, **CHANGES[name](_profile_of(pipe), setting)),
        identity=profile_identity,
    )


def one_later(schedule: Sequence[int]) -> tuple[int, ...]:
    """The schedule, with every full step between two reused ones moved to the next step."""
    return tuple(step + ({step - 1, step + 1}.isdisjoint(schedule) and step < schedule[-1]) for step in schedule)


def _branches_in_turns(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> AbstractContextManager[Attached]:
    """Both branches have equally many full steps; isolated ones come one step later in the unconditional branch."""
    profile = _profile_of(pipe)
    policy, sigmas = shipped(profile, setting["speedup"]).policy, profile.conditions.sigmas
    assert isinstance(policy, Schedule)
    schedule = place_full_steps(policy.sigmas, policy.full_steps(len(sigmas)), sigmas)
    rule = ScheduleRule(schedule, unconditional=one_later(schedule))
    return under_rule(pipe, lambda: rule, joint=False, predict=lambda latent, cached, *_: cached.output)


METHODS = (
    *map(_ablation, CHANGES),
    Method(
        "last full step repeated by branches in turns",
        ABLATION,
        lambda steps: AT_SPEEDUPS,
        _branches_in_turns,
        identity=profile_identity,
    ),
)
