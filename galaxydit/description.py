"""Describe how the plugin would accelerate a pipeline, without attaching it."""

from dataclasses import dataclass
from typing import Any

from torch import nn

from galaxydit.config import GalaxyDiTConfig
from galaxydit.errors import GalaxyDiTError
from galaxydit.families import Family, blocks_of, family_of, transformers_of
from galaxydit.other_caches import refuse_other_caches
from galaxydit.proxies import proxies_of
from galaxydit.runtime.engine import Engine
from galaxydit.runtime.hooks import module_hooks
from galaxydit.runtime.registration import hook_of
from galaxydit.runtime.session import Session, Source


@dataclass(frozen=True)
class TransformerDescription:
    """Description of how `accelerate` would act on one transformer.

    Attributes:
        component: name of the transformer in the pipeline, such as "transformer_2".
        class_name: class of the transformer.
        family: name of the transformer's family (`galaxydit.families.Family`).
        blocks: number of blocks.
        branches: how guidance usually reaches the transformer, such as "separate calls".
        proxies: names of the proxies that the family offers.
        hooked: paths of the modules that would be hooked, such as "transformer.blocks.0".
    """

    component: str
    class_name: str
    family: str
    blocks: int
    branches: str
    proxies: tuple[str, ...]
    hooked: tuple[str, ...]


def describe(pipe: Any, config: GalaxyDiTConfig | None = None) -> list[TransformerDescription]:
    """The description of each transformer of a pipeline, or of a bare transformer.

    `config`, by default `GalaxyDiTConfig()`, decides which modules would be hooked.
    """
    descriptions = []
    for component, transformer in transformers_of(pipe).items():
        family = family_of(transformer)
        session = Session(config or GalaxyDiTConfig(), Source(pipe, transformer))
        hooked = [f"{component}.{path}" for path, _ in module_hooks(Engine(transformer, component, family, session))]
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


def refuse_unworkable(component: str, transformer: nn.Module, family: Family, config: GalaxyDiTConfig) -> None:
    """Raise GalaxyDiTError if a transformer is already accelerated, if it uses another cache, or if its family does not
    offer `proxy` or `reuse` of the `config`. `component` names the transformer in the message.
    """
    if hook_of(transformer) is not None:
        raise GalaxyDiTError(
            f"{component} is accelerated already; call remove() on its Acceleration, or galaxydit.remove(pipe), first"
        )
    refuse_other_caches(component, transformer)
    offered = proxies_of(family)
    if config.proxy not in offered:
        raise GalaxyDiTError(
            f"proxy={config.proxy!r} is not offered by {family.name}: expected one of {', '.join(sorted(offered))}; "
            "choose one of these"
        )
    if config.reuse == "residual" and not (family.is_chain and len(blocks_of(transformer, family)) > 1):
        raise GalaxyDiTError(
            f"reuse='residual' is not offered by {family.name}: expected a chain of at least two blocks that "
            "return one tensor; choose reuse='output'"
        )
