"""This project's methods: the published rule of GalaxyDiT, and the plugin's policies "proxy", "schedule" and "auto".

A profile holds the plugin's calibration for a model. Each method, except those named "without a profile", follows the
profile that is shipped for the model, or a profile file (`Method.with_profile`). "Branches alone" in a name means that
each guidance branch decides for itself.
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
    """Within the context, the plugin accelerates the pipeline.

    Yields an `Attached`, whose `bytes_held` returns the peak bytes of the tensors that the plugin has kept so far in
    the generation.

    `arguments` are keyword arguments of `galaxydit.accelerate`, such as `speedup` or `config`.
    """
    with galaxydit.accelerate(pipe, **arguments) as acceleration:
        yield Attached(lambda: acceleration.report.bytes_held)


def profile_identity(pipe: DiffusionPipeline, path: Path | None = None) -> str:
    """The hash of the plugin's code, a space, and the hash of the profile or, if none is shipped, "no profile".

    The profile is the file `path`, by default the profile that is shipped for the model.
    """
    profile = _profile_of(pipe, path)
    return f"{core_identity(pipe)} {profile.identity if profile is not None else 'no profile'}"


def _asking(name: str, policy: str, path: Path | None = None, suffix: str = "") -> Method:
    """The method that runs the plugin under `policy`; its settings are the wanted speedups AT_SPEEDUPS.

    `policy` says how full steps are chosen: "proxy", "schedule" or "auto" (see `galaxydit.accelerate`). `path` is the
    profile file, by default the shipped profile; `suffix` is appended to the name.
    """

    def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> AbstractContextManager[Attached]:
        return accelerated(pipe, speedup=setting["speedup"], policy=policy, profile=path)

    return Method(
        name=name + suffix,
        settings=lambda steps: AT_SPEEDUPS,
        attach=attach,
        identity=partial(profile_identity, path=path),
        with_profile=partial(_asking, name, policy),
    )


def _without_profile(name: str, policy: str) -> Method:
    def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> AbstractContextManager[Attached]:
        return accelerated(pipe, config=without_profile(pipe, Request(speedup=setting["speedup"], policy=policy)))

    return Method(name=name, settings=lambda steps: AT_SPEEDUPS, attach=attach, identity=core_identity)


def paper_rule(proxy: str, threshold: float, *, guidance_alignment: bool = True) -> GalaxyDiTConfig:
    """The configuration for the rule of arXiv 2512.03451.

    The first fifth of the steps is computed. A reused step adds the residual (output - input) that the block stack had
    at the last full step. Full steps do not correct the error of the reused steps before them.

    Args:
        proxy: one of `galaxydit.PROXIES`.
        threshold: steps are reused while the proxy's changes since the last full step sum to less than this.
        guidance_alignment: whether both guidance branches share one decision.
    """
    return GalaxyDiTConfig(Threshold(threshold), proxy=proxy, guidance_alignment=guidance_alignment, **PAPER)


def _paper(name: str, guidance_alignment: bool, path: Path | None = None, suffix: str = "") -> Method:
    def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> AbstractContextManager[Attached]:
        profile = _profile_of(pipe, path)
        ranked = profile is not None and bool(profile.evidence.ranking)
        proxy = profile.recipe.proxy if profile and ranked else documented_proxy(family_of(only_transformer(pipe)))
        config = paper_rule(proxy, setting["threshold"], guidance_alignment=guidance_alignment)
        return accelerated(pipe, config=config)

    return Method(
        name=name + suffix,
        # Proxies change by 0.1 to 30 % a step, in cosine distance by the square of that; the range serves all of them.
        settings=lambda steps: [{"threshold": threshold} for threshold in geometric_grid(0.00003, 3.0, 34)],
        attach=attach,
        identity=partial(profile_identity, path=path),
        with_profile=partial(_paper, name, guidance_alignment),
    )


def _profile_of(pipe: DiffusionPipeline, path: Path | None) -> Profile | None:
    return find_profile(only_transformer(pipe))[0] if path is None else load_profile(path)


METHODS = (
    _paper("galaxydit paper", guidance_alignment=True),
    _paper("galaxydit paper branches alone", guidance_alignment=False),
    _asking("galaxydit proxy", PROXY),
    _asking("galaxydit schedule", SCHEDULE),
    _asking(SHIPPED, AUTO),
    _without_profile("galaxydit without a profile", AUTO),
    _without_profile("galaxydit proxy without a profile", PROXY),
)
