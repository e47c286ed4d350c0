"""A diffusers hook that passes the calls of a module to a function, and the transformers that rules work on."""

from collections.abc import Callable
from typing import Any

from diffusers import DiffusionPipeline
from torch import nn

from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.compare.compute_counter import only_transformer
from galaxydit.families import SEPARATE, family_of
from galaxydit.runtime.hooks import HOOK_NAME, PluginHook

Forward = Callable[..., Any]
RULE_HOOK = "galaxydit_compare_rule"


class ModuleHook(PluginHook):
    """On a module: calls `run(forward, args, kwargs)` in place of its forward method."""

    name = RULE_HOOK

    def __init__(self, run: Callable[[Forward, Any, Any], Any]) -> None:
        super().__init__()
        self.run = run

    def new_forward(self, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return self.run(self.fn_ref.original_forward, args, kwargs)


def wan_transformer(pipe: DiffusionPipeline) -> nn.Module:
    """The transformer of a pipeline that the rules can work on.

    Raises GalaxyDiTError if the pipeline has two transformers, if the guidance branches are not separate calls, or if
    another cache is enabled.
    """
    transformer = only_transformer(pipe)
    name = type(transformer).__name__
    if family_of(transformer).branches != SEPARATE:
        raise GalaxyDiTError(
            f"transformer={name} is not allowed: expected one that is called once per guidance branch, such as Wan's; "
            "leave this method out"
        )
    registry = getattr(transformer, "_diffusers_hook", None)
    hooked = registry is not None and any(registry.get_hook(hook) for hook in (HOOK_NAME, RULE_HOOK))
    if hooked or getattr(transformer, "is_cache_enabled", False):
        raise GalaxyDiTError(
            f"transformer={name} is accelerated already: expected one without a cache; remove the cache first"
        )
    return transformer
