"""Registers a hook innermost on its module, and removes it again whatever was registered around it since.

Three reasons ask for the innermost place: hooks of others prepare what ours read (context parallelism splits a block's
input), accelerate drops every wrapper around its own when it offloads anew after each generation, and diffusers 0.42
disconnects a hook that has a `new_forward` when the one beneath it is removed.
"""

from collections.abc import Callable
from functools import partial, update_wrapper
from typing import Any

from diffusers.hooks import HookRegistry
from diffusers.hooks.hooks import HookFunctionReference
from torch import nn


def is_hooked(module: nn.Module) -> bool:
    """Whether hooks of diffusers or accelerate are on the module."""
    registry = getattr(module, "_diffusers_hook", None)
    return "_old_forward" in vars(module) or bool(registry is not None and registry.hooks)


def insert_innermost(module: nn.Module, hook: Any) -> Callable[[], None]:
    """Register a hook with a `new_forward` in the module's diffusers registry; returns the function that removes it."""
    had_registry, had_forward = hasattr(module, "_diffusers_hook"), "forward" in vars(module)
    registry = HookRegistry.check_if_exists_or_initialize(module)
    holder, attribute = _innermost_slot(module, registry)
    beneath = getattr(holder, attribute)
    wrapper = update_wrapper(partial(hook.new_forward, module), beneath)
    reference = HookFunctionReference()
    reference.pre_forward, reference.post_forward = hook.pre_forward, hook.post_forward
    reference.forward, reference.original_forward = wrapper, beneath
    hook.fn_ref = reference
    registry.hooks[hook.name] = hook
    registry._hook_order.insert(0, hook.name)
    registry._fn_refs.insert(0, reference)
    setattr(holder, attribute, wrapper)

    def take_out() -> None:
        registry.hooks.pop(hook.name)
        registry._hook_order.remove(hook.name)
        registry._fn_refs.remove(reference)
        for holder, attribute in _slots(module, registry):
            if getattr(holder, attribute, None) is wrapper:
                setattr(holder, attribute, reference.original_forward)
        if not had_forward and vars(module).get("forward") is beneath:
            del module.forward
        if not registry.hooks and not had_registry:
            del module._diffusers_hook

    return take_out


def _slots(module: nn.Module, registry: HookRegistry) -> list[tuple[Any, str]]:
    """Every attribute that may hold the next forward inwards: the module's own, accelerate's, and those of hooks."""
    of_hooks = [(reference, name) for reference in registry._fn_refs for name in ("forward", "original_forward")]
    return [(module, "forward"), (module, "_old_forward"), *of_hooks]


def _innermost_slot(module: nn.Module, registry: HookRegistry) -> tuple[Any, str]:
    """The attribute that holds the module's bare forward."""
    under_accelerate = "_old_forward" in vars(module)
    if registry._fn_refs:
        reference = registry._fn_refs[0]
        attribute = "forward" if reference.original_forward is None else "original_forward"
        inwards = getattr(reference, attribute)
        if not (under_accelerate and getattr(getattr(inwards, "func", None), "__module__", "") == "accelerate.hooks"):
            return reference, attribute
    return module, "_old_forward" if under_accelerate else "forward"
