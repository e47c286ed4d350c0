"""diffusers hooks that hand a transformer's calls, and those of its parts, to a function."""

from collections.abc import Callable
from typing import Any

from diffusers import DiffusionPipeline
from diffusers.hooks.hooks import BaseState, CacheContext, StateManager
from torch import nn

from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.arena.counter import only_transformer
from galaxydit.families import SEPARATE, family_of
from galaxydit.hooks import HOOK_NAME, PluginHook

Forward = Callable[..., Any]
POLICY = "arena policy"


class TransformerHook(PluginHook):
    """On a transformer: hands its calls on, with diffusers' cache context."""

    name = POLICY
    _is_stateful = True

    def __init__(self, run: Callable[[CacheContext, Forward, Any, Any], Any], end: Callable[[], None]) -> None:
        super().__init__()
        self.run, self.end = run, end
        self.contexts = StateManager(BaseState)

    def new_forward(self, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return self.run(self.contexts.context, self.fn_ref.original_forward, args, kwargs)

    def reset_state(self, module: nn.Module) -> nn.Module:
        """Called by pipelines when a generation has ended well."""
        self.contexts.reset()
        self.end()
        return module


class ModuleHook(PluginHook):
    """On a part of a transformer: hands its calls on."""

    name = POLICY

    def __init__(self, run: Callable[[Forward, Any, Any], Any]) -> None:
        super().__init__()
        self.run = run

    def new_forward(self, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return self.run(self.fn_ref.original_forward, args, kwargs)


def wan_transformer(pipe: DiffusionPipeline) -> nn.Module:
    """The transformer of a pipeline that the policies can work on.

    Raises GalaxyDiTError where there are two, where guidance branches are not called apart, or where another plugin or
    cache is at work.
    """
    transformer = only_transformer(pipe)
    if family_of(transformer).branches != SEPARATE:
        raise GalaxyDiTError(
            f"transformer={type(transformer).__name__}, allowed are those that are called once for each guidance "
            "branch, such as Wan's; the arena's policies know no other kind"
        )
    registry = getattr(transformer, "_diffusers_hook", None)
    hooked = registry is not None and any(registry.get_hook(name) for name in (HOOK_NAME, POLICY))
    if hooked or getattr(transformer, "is_cache_enabled", False):
        raise GalaxyDiTError(f"{type(transformer).__name__} is accelerated already; take that off first")
    return transformer
