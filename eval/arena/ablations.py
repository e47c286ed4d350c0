"""The shipped default with one of its ideas taken out, or with one put in that it does without: what each is worth.

Two more of them are methods of their own: guidance alignment is `galaxydit paper` against `galaxydit paper branches
alone`, and where full steps lie is `planned schedule` against `uniform skip order 1`.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from diffusers import DiffusionPipeline

import galaxydit
from galaxydit import Config
from galaxydit.eval.arena.attach import spread
from galaxydit.eval.arena.counter import only_transformer
from galaxydit.eval.arena.method import Attached, Method, Setting
from galaxydit.eval.arena.own import SPEEDUPS, profile_identity
from galaxydit.plan import full_share
from galaxydit.planning import plan_of
from galaxydit.profile import Profile
from galaxydit.profile_store import find_profile

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
    "errors learned online, no profile": lambda profile, setting: {
        "speedup": setting["speedup"],
        "proxy": other_proxy(profile),
    },
}
AT_SPEEDUPS = tuple({"speedup": speedup} for speedup in SPEEDUPS)
SETTINGS: dict[str, Sequence[Setting]] = {
    "schedule moved by the sample": [one | {"follow": follow} for one in AT_SPEEDUPS for follow in FOLLOWS],
    "expected error instead of a budget": [{"max_error": value} for value in spread(0.003, 1.0, 18)],
}


def _ablation(name: str) -> Method:
    @contextmanager
    def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> Iterator[Attached]:
        profile, why = find_profile(only_transformer(pipe))
        if profile is None:
            raise ValueError(f"profile is None, allowed is a measured one: {why}; run `galaxydit calibrate`")
        with galaxydit.accelerate(pipe, **CHANGES[name](profile, setting)) as acceleration:
            yield Attached(lambda: acceleration.report.bytes_held)

    return Method(name, SOURCE, lambda steps: SETTINGS.get(name, AT_SPEEDUPS), attach, identity=profile_identity)


METHODS = tuple(map(_ablation, CHANGES))
