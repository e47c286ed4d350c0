"""This project's methods: the published rule of GalaxyDiT, and the plugin's policies "proxy", "schedule" and "auto".

Each, except those named "without a profile", follows the model's shipped profile or the file `setting["profile"]`.
"""

from dataclasses import replace
from typing import Any

from diffusers import DiffusionPipeline

from galaxydit.eval.methods.method import AttachMethod, Context, Setting, geometric_grid, method
from galaxydit.pipelines.trial import accelerated
from galaxydit.profiles.configure import configure
from galaxydit.profiles.resolve import resolve
from galaxydit.request import AUTO, PAPER, PROXY, SCHEDULE, PolicyName, Request

AT_SPEEDUPS: list[dict[str, Any]] = [
    {"speedup": speedup} for speedup in (1.25, 1.5, 1.75, 2.0, 2.25, 2.5, 2.75, 3.0, 3.25, 3.5, 4.0, 4.5)
]
SHIPPED = "galaxydit"


def at_speedups(steps: int) -> list[dict[str, Any]]:
    return AT_SPEEDUPS


def thresholds(steps: int) -> list[Setting]:
    """Proxies change by 0.1 to 30 % a step, in cosine distance by the square of that; the range serves all of them."""
    return [{"threshold": threshold} for threshold in geometric_grid(0.00003, 3.0, 34)]


def paper(*, guidance_alignment: bool) -> AttachMethod:
    """Attaches the rule of arXiv 2512.03451, which may also reuse the last step."""

    def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> Context:
        config = resolve(pipe, Request(**setting, policy=PAPER)).config
        return accelerated(pipe, config=replace(config, keep_last=0, guidance_alignment=guidance_alignment))

    return attach


def with_profile(policy: PolicyName) -> AttachMethod:
    return lambda pipe, setting, calibration: accelerated(pipe, **setting, policy=policy)


def general(policy: PolicyName) -> AttachMethod:
    return lambda pipe, setting, calibration: accelerated(
        pipe, config=configure(pipe, Request(**setting, policy=policy), None, setting["speedup"])
    )


method("galaxydit paper", "GalaxyDiT, arXiv 2512.03451", thresholds, follows_profile=True)(
    paper(guidance_alignment=True)
)
method("galaxydit paper branches alone", "GalaxyDiT, arXiv 2512.03451", thresholds, follows_profile=True)(
    paper(guidance_alignment=False)
)
method("galaxydit proxy", "this project", at_speedups, follows_profile=True)(with_profile(PROXY))
method("galaxydit schedule", "this project", at_speedups, follows_profile=True)(with_profile(SCHEDULE))
method("galaxydit", "this project", at_speedups, follows_profile=True)(with_profile(AUTO))
method("galaxydit proxy without a profile", "this project", at_speedups)(general(PROXY))
method("galaxydit without a profile", "this project", at_speedups)(general(AUTO))
