"""The variants by which the ideas of GalaxyDiT (arXiv 2512.03451) are judged on wan-tiny."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from galaxydit import GalaxyDiTConfig
from galaxydit.eval.methods.method import Context
from galaxydit.eval.methods.method_registry import load_method
from galaxydit.eval.model_page.idea_tables import ALONE, MOVED, ON, PAPERS_RULE, SCHEDULED, SEES_PROMPT, SPEEDUPS
from galaxydit.families import Family
from galaxydit.pipelines.trial import Attach, accelerated
from galaxydit.policies.proxy_threshold import ProxyThreshold
from galaxydit.profiles.resolve import resolve
from galaxydit.proxies import PROXIES, proxies_of
from galaxydit.request import PAPER, PROXY, SCHEDULE, Request

LEADING = "block_output_cosine"  # of the shipped profile, by rank; all others are compared by their L1 distance
THRESHOLD_RANGE = (1e-6, 10.0)  # in which one with the wanted compute is looked for


@dataclass(frozen=True)
class IdeaVariant:
    """A way to generate at `speedup` by compute.

    `attach` takes pipeline, profile and threshold; without `has_threshold` it ignores the last one.
    """

    name: str
    speedup: float
    attach: Callable[[Any, str, float], Context]
    has_threshold: bool = False

    @property
    def key(self) -> str:
        return f"{self.name}, {self.speedup:g}x"

    def with_threshold(self, profile: str, threshold: float) -> Attach:
        return lambda pipe: self.attach(pipe, profile, threshold)


def variants_of(family: Family) -> list[IdeaVariant]:
    """All variants for a model of this family."""
    variants = []
    for speedup in SPEEDUPS:
        variants.append(_configured(SCHEDULED, speedup, SCHEDULE))
        # How much of a video's deviation from the mean distance counts; 0 is the schedule.
        variants.append(_moved(1.0, speedup))
        variants.append(_moved(1.0, speedup, guidance_alignment=False))
    variants.append(_moved(0.5, 2.0))
    variants.append(_configured("schedule, first fifth computed", 2.0, SCHEDULE, warmup=0.2))
    for guidance_alignment in (True, False):
        variants.append(_paper(PAPERS_RULE, guidance_alignment=guidance_alignment))
        variants.append(_paper(f"{PAPERS_RULE} on {SEES_PROMPT}", SEES_PROMPT, guidance_alignment=guidance_alignment))
    variants.append(_threshold_on(SEES_PROMPT, guidance_alignment=False))
    for proxy in proxies_of(family):
        if proxy == LEADING or (PROXIES[proxy].differs_by_sample and PROXIES[proxy].distance == "l1"):
            variants.append(_threshold_on(proxy))
    variants.append(_peer("FirstBlockCache", {}))
    variants.append(_peer("DBCache", {"warmup_steps": 2, "first_blocks": 1}))
    return variants


def _config(pipe: Any, request: Request) -> GalaxyDiTConfig:
    return resolve(pipe, request).config


def _configured(name: str, speedup: float, policy: Any, **changes: Any) -> IdeaVariant:
    def attach(pipe: Any, profile: str, _: float) -> Context:
        config = _config(pipe, Request(speedup=speedup, policy=policy, profile=profile))
        return accelerated(pipe, config=replace(config, **changes))

    return IdeaVariant(name, speedup, attach)


def _moved(weight: float, speedup: float, *, guidance_alignment: bool = True) -> IdeaVariant:
    def attach(pipe: Any, profile: str, _: float) -> Context:
        config = _config(pipe, Request(speedup=speedup, policy=PROXY, profile=profile))
        assert isinstance(config.policy, ProxyThreshold)
        policy = replace(config.policy, deviation_weight=weight)
        return accelerated(pipe, config=replace(config, policy=policy, guidance_alignment=guidance_alignment))

    name = f"{MOVED}, weight {weight:g}"
    return IdeaVariant(_aligned(name, guidance_alignment), speedup, attach)


def _paper(name: str, proxy: Any = None, *, guidance_alignment: bool) -> IdeaVariant:
    """The rule of arXiv 2512.03451, by default with the profile's proxy."""

    def attach(pipe: Any, profile: str, threshold: float) -> Context:
        config = _config(pipe, Request(threshold=threshold, policy=PAPER, profile=profile, proxy=proxy))
        return accelerated(pipe, config=replace(config, keep_last=0, guidance_alignment=guidance_alignment))

    return IdeaVariant(_aligned(name, guidance_alignment), 2.0, attach, has_threshold=True)


def _threshold_on(proxy: Any, *, guidance_alignment: bool = True) -> IdeaVariant:
    """This project's prediction and correction, with one threshold on a proxy in place of a plan."""

    def attach(pipe: Any, profile: str, threshold: float) -> Context:
        config = _config(pipe, Request(threshold=threshold, profile=profile, proxy=proxy))
        return accelerated(pipe, config=replace(config, guidance_alignment=guidance_alignment))

    return IdeaVariant(_aligned(f"{ON} {proxy}", guidance_alignment), 2.0, attach, has_threshold=True)


def _aligned(name: str, guidance_alignment: bool) -> str:
    return name if guidance_alignment else f"{name}, {ALONE}"


def _peer(name: str, setting: dict[str, Any]) -> IdeaVariant:
    def attach(pipe: Any, _: str, threshold: float) -> Context:
        return load_method(name).attach(pipe, setting | {"threshold": threshold}, None)

    return IdeaVariant(name, 2.0, attach, has_threshold=True)
