"""The shipped default with one of its ideas taken out, or with one put in that it does without: what each is worth.

Two more of them are methods of their own: guidance alignment is `galaxydit paper` against `galaxydit paper branches
alone`, and where full steps lie is `planned schedule` against `uniform skip order 1`.
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from itertools import cycle
from typing import Any

from diffusers import DiffusionPipeline

from galaxydit import Config
from galaxydit.calibration.build_profile import plan_target
from galaxydit.calibration.generation_observer import record_sample
from galaxydit.calibration.recording import Recording
from galaxydit.calibration.scheduler_response import euler_response
from galaxydit.calibration.search import PLANNER_VERSION, Planner
from galaxydit.eval.arena.attach import accelerated, spread
from galaxydit.eval.arena.counter import only_transformer
from galaxydit.eval.arena.method import Attached, Method, Setting
from galaxydit.eval.arena.own import SPEEDUPS, profile_identity
from galaxydit.eval.arena.policies.attachment import under_policy
from galaxydit.eval.arena.policies.rule import Seen
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.plan import full_share, place_full_steps
from galaxydit.planning import plan_of
from galaxydit.profile import Profile, Target
from galaxydit.profile_store import find_profile
from galaxydit.propagation import Propagation
from galaxydit.strict import decode

SOURCE = "ablation"
FOLLOWS = (0.25, 1.0)

Change = Callable[[Profile, Setting], dict[str, Any]]
"""From the model's profile and a setting to the arguments of `galaxydit.accelerate`."""


def shipped(profile: Profile, speedup: float, *, weighed: bool = True, follow: float = 0.0) -> Config:
    """What `accelerate(pipe, speedup=...)` makes of a profile; `follow` above 0 reads the proxy and pays for it."""
    share = full_share(speedup, profile.reused_cost) if follow else 1 / speedup
    target = replace(profile.target_for(1 / share), follow=follow)
    if not weighed:
        target = replace(target, weights=())
    return replace(profile.config_for(Config(), target), plan=plan_of(profile, target, speedup))


def other_proxy(profile: Profile) -> str:
    """A proxy that the profile is not for, so that it is not used."""
    return "block_residual" if profile.proxy != "block_residual" else "self_attention"


CHANGES: dict[str, Change] = {
    "predictions not weighed": lambda profile, setting: {
        "config": shipped(profile, setting["speedup"], weighed=False),
    },
    "last full step repeated": lambda profile, setting: {
        "config": replace(shipped(profile, setting["speedup"], weighed=False), order=0),
    },
    "residual reused": lambda profile, setting: {
        "config": replace(shipped(profile, setting["speedup"]), reuse="residual"),
    },
    "first fifth computed": lambda profile, setting: {
        "config": replace(shipped(profile, setting["speedup"]), warmup=0.2),
    },
    "schedule moved by the sample": lambda profile, setting: {
        "config": shipped(profile, setting["speedup"], follow=setting["follow"]),
    },
    "expected error instead of a budget": lambda profile, setting: {"max_error": setting["max_error"]},
    "errors learned online without a profile": lambda profile, setting: {
        "speedup": setting["speedup"],
        "proxy": other_proxy(profile),
    },
}
AT_SPEEDUPS = tuple({"speedup": speedup} for speedup in SPEEDUPS)
SETTINGS: dict[str, Sequence[Setting]] = {
    "schedule moved by the sample": [one | {"follow": follow} for one in AT_SPEEDUPS for follow in FOLLOWS],
    "expected error instead of a budget": [{"max_error": value} for value in spread(0.003, 1.0, 18)],
}


def _profile_of(pipe: DiffusionPipeline) -> Profile:
    profile, why = find_profile(only_transformer(pipe))
    if profile is None:
        raise ValueError(f"profile is None, allowed is a measured one: {why}; run `galaxydit calibrate`")
    return profile


def _ablation(name: str) -> Method:
    def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> AbstractContextManager[Attached]:
        return accelerated(pipe, **CHANGES[name](_profile_of(pipe), setting))

    return Method(name, SOURCE, lambda steps: SETTINGS.get(name, AT_SPEEDUPS), attach, identity=profile_identity)


@dataclass(frozen=True)
class ScheduleRule:
    """Computes these steps."""

    full: Collection[int]

    def decide(self, seen: Seen) -> bool:
        return seen.step not in self.full


def one_later(schedule: Sequence[int]) -> tuple[int, ...]:
    """The schedule with every full step that has reused ones on both sides one step later."""
    return tuple(step + ({step - 1, step + 1}.isdisjoint(schedule) and step < schedule[-1]) for step in schedule)


def _branches_in_turns(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> AbstractContextManager[Attached]:
    """As many full steps in both branches, but where they are apart, those of the unconditional one come one later."""
    profile = _profile_of(pipe)
    plan = shipped(profile, setting["speedup"]).plan
    assert plan is not None
    schedule = place_full_steps(plan, profile.conditions.sigmas, 0)
    rules = cycle((ScheduleRule(schedule), ScheduleRule(one_later(schedule))))  # the conditional branch comes first
    return under_policy(pipe, lambda: next(rules), joint=False, predict=lambda latent, full, branch, step: full.output)


def _unchanged(profile: Profile, recording: Recording) -> tuple[Profile, Recording]:
    return profile, recording


def without_propagation(profile: Profile, recording: Recording) -> tuple[Profile, Recording]:
    """Errors neither grow nor fade."""
    return replace(profile, propagation=Propagation()), recording


def as_for_euler(profile: Profile, recording: Recording) -> tuple[Profile, Recording]:
    """Predictions weigh what Euler's scheduler would make of them."""
    return profile, replace(recording, scheduler_response=euler_response(recording.sigmas))


def _replanned(name: str, change: Callable[[Profile, Recording], tuple[Profile, Recording]] = _unchanged) -> Method:
    """Planned anew on the prompts for tuning, fewer than the shipped profile has seen."""

    def plan(pipe: DiffusionPipeline, prompts: Sequence[str], settings: GenerationSettings, seed: int) -> Any:
        profile = _profile_of(pipe)
        changed = [
            change(profile, record_sample(pipe, prompt, settings, seed + index)[0])
            for index, prompt in enumerate(prompts)
        ]
        planner = Planner([recording for _, recording in changed], changed[0][0].propagation)
        targets = {speedup: plan_target(planner, speedup, profile.error_map, profile.clock) for speedup in SPEEDUPS}
        return {str(speedup): asdict(target) for speedup, target in targets.items() if target is not None}

    def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> AbstractContextManager[Attached]:
        profile, target = _profile_of(pipe), decode(Target, calibration[str(setting["speedup"])])
        config = replace(profile.config_for(Config(), target), plan=plan_of(profile, target, setting["speedup"]))
        return accelerated(pipe, config=config)

    def identity(pipe: DiffusionPipeline) -> str:
        return f"{profile_identity(pipe)} planner {PLANNER_VERSION}"

    return Method(name, SOURCE, lambda steps: AT_SPEEDUPS, attach, plan, identity=identity)


METHODS = (
    *map(_ablation, CHANGES),
    Method(
        "last full step repeated by branches in turns",
        SOURCE,
        lambda steps: AT_SPEEDUPS,
        _branches_in_turns,
        identity=profile_identity,
    ),
    _replanned("planned on few prompts"),
    _replanned("planned on few prompts without propagation", without_propagation),
    _replanned("planned on few prompts as for Euler", as_for_euler),
)
