"""Describe how the plugin would accelerate a pipeline, without attaching it."""

from dataclasses import dataclass
from typing import Any

from torch import nn

from galaxydit.config import GalaxyDiTConfig
from galaxydit.errors import GalaxyDiTError
from galaxydit.families import Family
from galaxydit.other_caches import refuse_other_caches
from galaxydit.proxies import Proxy, proxies_of
from galaxydit.runtime.engine import Engine
from galaxydit.runtime.module_hooks import module_hooks
from galaxydit.runtime.recognition import blocks_of, family_of, transformers_of
from galaxydit.runtime.registration import hook_of
from galaxydit.runtime.session import Session
from galaxydit.runtime.source import Source


@dataclass(frozen=True)
class TransformerDescription:
    """How `accelerate` would act on one transformer."""

    component: str  # such as "transformer_2"
    class_name: str
    family: str
    blocks: int
    branches: str  # such as "separate calls"
    proxies: tuple[str, ...]
    hooked: tuple[str, ...]  # module paths, such as "transformer.blocks.0"


def describe(pipe: Any, config: GalaxyDiTConfig | None = None) -> list[TransformerDescription]:
    """How each transformer of a pipeline, or a bare one, would be accelerated, by default with `GalaxyDiTConfig()`."""
    descriptions = []
    for component, transformer in transformers_of(pipe).items():
        family = family_of(transformer)
        session = Session(Source(pipe, transformer))
        engine = Engine(transformer, component, family, session, config or GalaxyDiTConfig())
        hooked = [f"{component}.{path}" for path, _ in module_hooks(engine)]
        descriptions.append(
            TransformerDescription(
                component=component,
                class_name=type(transformer).__name__,
                family=family.name,
                blocks=len(blocks_of(transformer, family)),
                branches=family.branches,
                proxies=proxies_of(family),
                hooked=(component, *hooked),
            )
        )
    return descriptions


def refuse_accelerated(component: str, transformer: nn.Module) -> None:
    """Raise GalaxyDiTError for an accelerated or cached transformer."""
    if hook_of(transformer) is not None:
        raise GalaxyDiTError(
            f"{component} is accelerated already; call remove() on its Acceleration, or galaxydit.remove(pipe), first"
        )
    refuse_other_caches(component, transformer)


def refuse_unworkable(transformer: nn.Module, family: Family, config: GalaxyDiTConfig) -> None:
    """Raise GalaxyDiTError if a transformer's family lacks the proxy or the reuse of a configuration."""
    offered, own = proxies_of(family), isinstance(config.proxy, Proxy)
    if config.proxy not in offered and not own:
        raise GalaxyDiTError(
            f"proxy={config.proxy!r} is not offered by {family.name}: expected one of {', '.join(sorted(offered))}; "
            "choose one of these"
        )
    if config.predicts == "residual" and not (family.is_chain and len(blocks_of(transformer, family)) > 1):
        raise GalaxyDiTError(
            f"reuse='residual' is not offered by {family.name}: expected a chain of at least two blocks that "
            "return one tensor; choose reuse='output'"
        )
