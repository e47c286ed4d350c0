"""What the plugin would do to a pipeline, before anything is attached."""

from dataclasses import dataclass
from typing import Any

from galaxydit.config import GalaxyDiTConfig
from galaxydit.families import blocks_of, family_of, transformers_of
from galaxydit.proxies import proxies_of
from galaxydit.runtime.engine import Engine
from galaxydit.runtime.hooks import module_hooks
from galaxydit.runtime.session import Session, Source


@dataclass(frozen=True)
class TransformerDescription:
    """What `accelerate` would do to one transformer."""

    component: str
    class_name: str
    family: str
    blocks: int
    branches: str
    proxies: tuple[str, ...]
    hooked: tuple[str, ...]


def describe(pipe: Any, config: GalaxyDiTConfig | None = None) -> list[TransformerDescription]:
    """Family, blocks, guidance branches and the modules that would be hooked, for each transformer of a pipeline."""
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
