"""This project's methods: GalaxyDiT's rule as published, its calibrated proxy policy, the schedule, and the default.

Each method follows the profile of the model, or a profile file that `with_profile` puts in its place.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from diffusers import DiffusionPipeline

import galaxydit
from galaxydit import GalaxyDiTConfig, Threshold
from galaxydit.eval.compare.compute_counter import only_transformer
from galaxydit.eval.compare.identity import core_identity
from galaxydit.eval.compare.method import Attached, Method, Setting, geometric_grid
from galaxydit.families import family_of
from galaxydit.profiles.registry import find_profile, load_profile
from galaxydit.profiles.resolve import documented_proxy, without_profile
from galaxydit.profiles.schema import Profile
from galaxydit.request import AUTO, PROXY, SCHEDULE, Request

AT_SPEEDUPS = [{"speedup": speedup} for speedup in (1.25, 1.5, 1.75, 2.0, 2.25, 2.5, 2.75, 3.0, 3.25, 3.5, 4.0, 4.5)]
SHIPPED = "galaxydit"
PAPER: dict[str, Any] = {
    "warmup": 0.2, "keep_last": 0, "max_consecutive": None, "reuse": "residual", "order": 0, "correction": False
}  # fmt: skip


@contextmanager
def accelerated(pipe: DiffusionPipeline, **arguments: Any) -> Iterator[Attached]:
    """Run the pipeline with the plugin; the arguments are those of `galaxydit.accelerate`."""
    with galaxydit.accelerate(pipe, **arguments) as acceleration:
        yield Attached(lambda: acceleration.report.bytes_held)


def profile_identity(pipe: DiffusionPipeline, path: Path | None = None) -> str:
    """Identity of the plugin's code and of the profile that it uses for the model."""
    profile = _profile_of(pipe, path)
    return f"{core_identity(pipe)} {profile.identity if profile is not None else 'no profile'}"


def own_methods(path: Path | None = None, suffix: str = "") -> tuple[Method, ...]:
    """The methods that follow a profile: the model's shipped profile, or that of a file; `suffix` ends their names."""
    identity = partial(profile_identity, path=path)

    def asking(name: str, policy: str) -> Method:
        def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> AbstractContextManager[Attached]:
            return accelerated(pipe, speedup=setting["speedup"], policy=policy, profile=path)

        return Method(name + suffix, lambda steps: AT_SPEEDUPS, attach, identity=identity)

    return (
        _paper("galaxydit paper" + suffix, path, guidance_alignment=True),
        _paper("galaxydit paper branches alone" + suffix, path, guidance_alignment=False),
        asking("galaxydit proxy", PROXY),
        asking("galaxydit schedule", SCHEDULE),
        asking(SHIPPED, AUTO),
    )


def paper_rule(proxy: str, threshold: float, *, guidance_alignment: bool = True) -> GalaxyDiTConfig:
    """The rule of arXiv 2512.03451 on a proxy: residuals repeated, the first fifth computed, no correction."""
    return GalaxyDiTConfig(Threshold(threshold), proxy=proxy, guidance_alignment=guidance_alignment, **PAPER)


def _paper(name: str, path: Path | None, *, guidance_alignment: bool) -> Method:
    def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> AbstractContextManager[Attached]:
        profile = _profile_of(pipe, path)
        ranked = profile is not None and bool(profile.evidence.ranking)
        proxy = profile.recipe.proxy if profile and ranked else documented_proxy(family_of(only_transformer(pipe)))
        config = paper_rule(proxy, setting["threshold"], guidance_alignment=guidance_alignment)
        return accelerated(pipe, config=config)

    return Method(
        name=name,
        # Proxies change by 0.1 to 30 % a step, in cosine distance by the square of that; the range serves all of them.
        settings=lambda steps: [{"threshold": threshold} for threshold in geometric_grid(0.00003, 3.0, 34)],
        attach=attach,
        identity=partial(profile_identity, path=path),
    )


def _profile_of(pipe: DiffusionPipeline, path: Path | None) -> Profile | None:
    return find_profile(only_transformer(pipe))[0] if path is None else load_profile(path)


def with_profiles(methods: tuple[Method, ...], paths: tuple[Path, ...]) -> tuple[Method, ...]:
    """The methods, with those that follow a profile once for each file; the file's stem ends their names if there are
    several.
    """
    if not paths:
        return methods
    following = {method.name for method in own_methods()}
    chosen = [method for method in methods if method.name not in following]
    for path in paths:
        suffix = f" {path.stem}" if len(paths) > 1 else ""
        wanted = {method.name for method in methods}
        chosen += [method for method in own_methods(path, suffix) if method.name.removesuffix(suffix) in wanted]
    return tuple(chosen)


METHODS = (
    *own_methods(),
    Method(
        name="galaxydit without a profile",
        settings=lambda steps: AT_SPEEDUPS,
        attach=lambda pipe, setting, calibration: accelerated(
            pipe, config=without_profile(pipe, Request(speedup=setting["speedup"]))
        ),
        identity=core_identity,
    ),
    Method(
        name="galaxydit proxy without a profile",
        settings=lambda steps: AT_SPEEDUPS,
        attach=lambda pipe, setting, calibration: accelerated(
            pipe, config=without_profile(pipe, Request(speedup=setting["speedup"], policy=PROXY))
        ),
        identity=core_identity,
    ),
)
