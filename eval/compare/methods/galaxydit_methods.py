"""This project: its paper's method, the same without guidance alignment, and the default with and without a profile."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from diffusers import DiffusionPipeline

import galaxydit
from galaxydit import GalaxyDiTConfig, Threshold
from galaxydit.eval.compare.compute_counter import only_transformer
from galaxydit.eval.compare.identity import core_identity
from galaxydit.eval.compare.method import Attached, Method, Setting, geometric_grid
from galaxydit.profiles.registry import find_profile
from galaxydit.profiles.resolve import settings_without_profile

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


def _best_proxy(pipe: DiffusionPipeline, *unused: Any) -> dict[str, str]:
    """The proxy that the model's profile ranks first; without a profile the default proxy."""
    profile, _ = find_profile(only_transformer(pipe))
    return {"proxy": profile.recipe.proxy if profile is not None else GalaxyDiTConfig().proxy}


def profile_identity(pipe: DiffusionPipeline) -> str:
    """Identity of the plugin's code and of the profile that it uses for the model."""
    profile, _ = find_profile(only_transformer(pipe))
    return f"{core_identity(pipe)} {profile.identity if profile is not None else 'no profile'}"


def _paper(name: str, *, guidance_alignment: bool) -> Method:
    def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> AbstractContextManager[Attached]:
        fields = {**PAPER, "proxy": calibration["proxy"], "guidance_alignment": guidance_alignment}
        return accelerated(pipe, config=GalaxyDiTConfig(Threshold(setting["threshold"]), **fields))

    return Method(
        name=name,
        # Proxies change by 0.1 to 30 % a step, so the range serves all of them.
        settings=lambda steps: [{"threshold": threshold} for threshold in geometric_grid(0.003, 3.0, 22)],
        attach=attach,
        calibrate=_best_proxy,
        identity=profile_identity,
    )


METHODS = (
    _paper("galaxydit paper", guidance_alignment=True),
    _paper("galaxydit paper branches alone", guidance_alignment=False),
    Method(
        name=SHIPPED,
        settings=lambda steps: AT_SPEEDUPS,
        attach=lambda pipe, setting, calibration: accelerated(pipe, speedup=setting["speedup"]),
        identity=profile_identity,
    ),
    Method(
        name="galaxydit without a profile",
        settings=lambda steps: AT_SPEEDUPS,
        attach=lambda pipe, setting, calibration: accelerated(
            pipe, config=settings_without_profile(pipe, 1, GalaxyDiTConfig(), setting["speedup"])
        ),
        identity=core_identity,
    ),
)
