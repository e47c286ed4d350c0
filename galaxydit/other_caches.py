"""Refuse caches of other tools, which skip blocks that the plugin takes for computed."""

from functools import partial
from typing import Any

from diffusers.hooks import HookRegistry, ModelHook
from diffusers.hooks.hooks import HookFunctionReference
from torch import nn

from galaxydit.errors import GalaxyDiTError


class HookedForward(partial):
    """The forward function of a hooked module; tools that restore it bind it again. `reference` leads to what is
    beneath, `had_forward` tells whether the module had a forward function of its own before the first hook."""

    reference: HookFunctionReference
    had_forward: bool

    def __get__(self, *_: Any) -> "HookedForward":
        return self


def forward_of_another(module: nn.Module) -> Any | None:
    """The function that a user or tool put in place of `forward`; None for hooks of known tools and compiled ones."""
    forward: Any = vars(module).get("forward")
    while hasattr(forward, "_torchdynamo_orig_callable"):
        forward = forward._torchdynamo_orig_callable
    if forward is None or getattr(forward, "__func__", None) is type(module).forward:
        return None
    if isinstance(forward, HookedForward) or isinstance(getattr(forward, "__wrapped__", None), HookedForward):
        return None
    wrapper = getattr(forward, "func", forward)  # hooks are bound by functools.partial
    if str(getattr(wrapper, "__module__", "")).startswith(("diffusers.hooks.", "accelerate.")):
        return None
    return forward


def refuse_other_caches(component: str, transformer: nn.Module, *, is_accelerated: bool = False) -> None:
    """Raise GalaxyDiTError for a cache of diffusers, or a replaced forward function, which other caches make."""
    kind = _cache_of(transformer)
    if kind:
        raise GalaxyDiTError(
            f"{component} has the cache {kind} enabled: expected none beside galaxydit; call "
            f"{component}.disable_cache(), or remove galaxydit first"
        )
    owner = next(base for base in type(transformer).__mro__ if "forward" in vars(base))
    other = vars(owner)["forward"]
    if getattr(other, "__module__", owner.__module__) == owner.__module__:
        other = None if is_accelerated else forward_of_another(transformer)
    if other is not None:
        raise GalaxyDiTError(
            f"{component}.forward is {getattr(other, '__qualname__', type(other).__name__)} of "
            f"{getattr(other, '__module__', 'another module')}: expected that of {owner.__name__}, because another may "
            "be a cache",
            f"undo the replacement (`del {component}.forward`; cache-dit: `cache_dit.disable_cache(pipe)`), or write "
            "it as the forward of a subclass",
        )


def _cache_of(transformer: nn.Module) -> str:
    """Name of the class of a transformer's cache, or ""."""
    if getattr(transformer, "is_cache_enabled", False):
        return type(transformer._cache_config).__name__
    for registry in _registries(transformer):
        for hook in tuple(registry.hooks.values()):
            if _is_cache(hook):
                return type(hook).__name__
    return ""


def _registries(transformer: nn.Module) -> list[HookRegistry]:
    own = getattr(transformer, "_diffusers_hook", None)
    if own is None:
        # No hook on the transformer itself, so its blocks are searched one by one.
        return [module._diffusers_hook for module in transformer.modules() if hasattr(module, "_diffusers_hook")]
    return [own, *own._get_child_registries()]


def _is_cache(hook: ModelHook) -> bool:
    module = type(hook).__module__
    return module.startswith("diffusers.") and module.endswith(("_cache", "pyramid_attention_broadcast"))
