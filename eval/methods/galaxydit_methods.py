"""This project's methods: the published rule of GalaxyDiT, and the plugin's policies "proxy", "schedule" and "auto".

Each, except those named "without a profile", follows the model's shipped profile or the file `setting["profile"]`.
"""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from diffusers import DiffusionPipeline

from galaxydit import GalaxyDiTConfig, Threshold
from galaxydit.eval.methods.method import Setting, geometric_grid, method
from galaxydit.pipelines.compute_counter import only_transformer
from galaxydit.pipelines.trial import Attached, accelerated
from galaxydit.profiles.configure import configure, documented_proxy
from galaxydit.profiles.registry import find_profile, load_profile
from galaxydit.profiles.schema import Profile
from galaxydit.request import PROXY, SCHEDULE, Request
from galaxydit.runtime.recognition import family_of

AT_SPEEDUPS: list[dict[str, Any]] = [
    {"speedup": speedup} for speedup in (1.25, 1.5, 1.75, 2.0, 2.25, 2.5, 2.75, 3.0, 3.25, 3.5, 4.0, 4.5)
]
SHIPPED = "galaxydit"
PAPER: dict[str, Any] = {
    "warmup": 0.2, "keep_last": 0, "max_consecutive": None, "reuse": "residual", "order": 0, "correction": False
}  # fmt: skip


def at_speedups(steps: int) -> list[dict[str, Any]]:
    return AT_SPEEDUPS


def thresholds(steps: int) -> list[Setting]:
    """Proxies change by 0.1 to 30 % a step, in cosine distance by the square of that; the range serves all of them."""
    return [{"threshold": threshold} for threshold in geometric_grid(0.00003, 3.0, 34)]


def paper_rule(proxy: str, threshold: float, *, guidance_alignment: bool = True) -> GalaxyDiTConfig:
    """The configuration for the rule of arXiv 2512.03451; with `guidance_alignment`, branches share one decision."""
    return GalaxyDiTConfig(Threshold(threshold), proxy=proxy, guidance_alignment=guidance_alignment, **PAPER)


def _under_paper(pipe: DiffusionPipeline, setting: Setting, aligned: bool) -> AbstractContextManager[Attached]:
    profile = profile_of(pipe, setting.get("profile"))
    ranked = profile is not None and bool(profile.evidence.ranking)
    proxy = profile.recipe.proxy if profile and ranked else documented_proxy(family_of(only_transformer(pipe)))
    return accelerated(pipe, config=paper_rule(proxy, setting["threshold"], guidance_alignment=aligned))


def profile_of(pipe: DiffusionPipeline, path: str | None) -> Profile | None:
    return find_profile(only_transformer(pipe))[0] if path is None else load_profile(Path(path))


@method("galaxydit paper", "GalaxyDiT, arXiv 2512.03451", thresholds, follows_profile=True)
def attach_paper(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> AbstractContextManager[Attached]:
    return _under_paper(pipe, setting, True)


@method("galaxydit paper branches alone", "GalaxyDiT, arXiv 2512.03451", thresholds, follows_profile=True)
def attach_alone(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> AbstractContextManager[Attached]:
    return _under_paper(pipe, setting, False)


@method("galaxydit proxy", "this project", at_speedups, follows_profile=True)
def attach_proxy(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> AbstractContextManager[Attached]:
    return accelerated(pipe, **setting, policy=PROXY)


@method("galaxydit schedule", "this project", at_speedups, follows_profile=True)
def attach_schedule(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> AbstractContextManager[Attached]:
    return accelerated(pipe, **setting, policy=SCHEDULE)


@method("galaxydit", "this project", at_speedups, follows_profile=True)
def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> AbstractContextManager[Attached]:
    return accelerated(pipe, **setting)


@method("galaxydit proxy without a profile", "this project", at_speedups)
def attach_own_proxy(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> AbstractContextManager[Attached]:
    return accelerated(pipe, config=configure(pipe, Request(**setting, policy=PROXY), None, setting["speedup"]))


@method("galaxydit without a profile", "this project", at_speedups)
def attach_general(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> AbstractContextManager[Attached]:
    return accelerated(pipe, config=configure(pipe, Request(**setting), None, setting["speedup"]))
