"""Put the plugin's hooks innermost: nearest to the module's own forward function. Only this file and
galaxydit/other_caches.py use private fields of diffusers' hooks.

Other threads may be within a call or a cache context, which take no lock. So each change is one assignment, and no list
or dictionary that diffusers may be walking through is changed.
"""

import threading
from collections.abc import Callable, Iterator
from copy import copy
from functools import update_wrapper
from typing import Any

from diffusers.hooks import HookRegistry, ModelHook
from diffusers.hooks.hooks import HookFunctionReference
from torch import nn

from galaxydit.errors import GalaxyDiTError
from galaxydit.other_caches import HookedForward
from galaxydit.torch_compile import hook_around_compiled

HOOK_NAME = "galaxydit"
_CHANGING = threading.RLock()  # accelerations share modules such as text encoders


class PluginHook(ModelHook):
    """A hook that refuses copies and pickles; if `removed`, it runs what is beneath, as wrappers may call it."""

    name = HOOK_NAME

    def __init__(self) -> None:
        super().__init__()
        self.removed = False  # diffusers walks through a hook's attributes, so none is added later

    def __reduce__(self) -> tuple[Any, ...]:
        raise GalaxyDiTError(
            "an accelerated model cannot be copied or pickled: the hooks of the copy would run the original; call "
            "remove() on its Acceleration first"
        )


class HookSet:
    """Hooks put on and removed together; `timesteps` is the scheduler's tensor at the last transformer call."""

    def __init__(self) -> None:
        self._hooks: list[tuple[PluginHook, Callable[[], None]]] = []  # with the function that removes it
        self.timesteps: Any | None = None

    def add(self, module: nn.Module, hook: PluginHook, *, is_root: bool = False) -> None:
        """Put a hook inside a module, or around a compiled one. That of a transformer (`is_root`) is always inside, and
        in diffusers' registry, where the cache context finds it; so is that of a module with other hooks, because these
        prepare inputs inside the compiled call.
        """
        is_compiled = getattr(module, "_compiled_call_impl", None) is not None
        with _CHANGING:
            if is_compiled and not is_root and not is_hooked(module):
                undo = hook_around_compiled(module, hook)
            else:
                undo = insert_innermost(module, hook, is_registered=is_root)
            self._hooks.append((hook, undo))

    def cover(self, module: nn.Module, name: str, hook: PluginHook, method: Callable[..., Any]) -> None:
        """Let a hook's method stand in for a method of one module."""
        before = vars(module).get(name)
        setattr(module, name, method)

        def uncover() -> None:
            if vars(module).get(name) != method:
                return  # another tool has put its own there since
            if before is None:
                delattr(module, name)
            else:
                setattr(module, name, before)

        self._hooks.append((hook, uncover))

    @property
    def are_attached(self) -> bool:
        return any(not hook.removed for hook, _ in tuple(self._hooks))

    def disable(self) -> None:
        """Let calls pass the hooks from now on."""
        for hook, _ in tuple(self._hooks):
            hook.removed = True

    def remove(self) -> None:
        self.disable()
        # The last one first, because it may be around an earlier one.
        while self._hooks:
            _, undo = self._hooks.pop()
            with _CHANGING:
                undo()


def hook_of(module: nn.Module) -> ModelHook | None:
    """The plugin's hook on a transformer; None where the plugin is not attached."""
    registry = getattr(module, "_diffusers_hook", None)
    return None if registry is None else registry.get_hook(HOOK_NAME)


def is_hooked(module: nn.Module) -> bool:
    """Whether hooks of diffusers or accelerate are on the module."""
    registry = getattr(module, "_diffusers_hook", None)
    return "_old_forward" in vars(module) or bool(registry is not None and registry.hooks)


def insert_innermost(module: nn.Module, hook: PluginHook, *, is_registered: bool) -> Callable[[], None]:
    """Put a hook innermost; return the function that removes it, whatever was registered around it since. Other hooks
    prepare its tensors (context parallelism), accelerate drops wrappers around its hook when it offloads again, and
    diffusers 0.42 disconnects a hook with `new_forward` when the hook beneath is removed.
    """
    # Another acceleration may be on a module that two pipelines share.
    others = []
    for holder, attribute in _slots(module):
        forward = getattr(holder, attribute, None)
        if isinstance(forward, HookedForward):
            others.append(forward)
    holder, attribute = _innermost_slot(module)
    beneath = getattr(holder, attribute)
    wrapper = HookedForward(hook.new_forward, module)
    update_wrapper(wrapper, beneath)
    wrapper.had_forward = others[0].had_forward if others else "forward" in vars(module)
    reference = HookFunctionReference()
    reference.pre_forward = hook.pre_forward
    reference.post_forward = hook.post_forward
    reference.forward = wrapper
    reference.original_forward = beneath
    wrapper.reference = reference
    hook.fn_ref = reference
    if is_registered:
        registry: Any = HookRegistry.check_if_exists_or_initialize(module)
        registry.hooks = {**registry.hooks, hook.name: hook}
        registry._fn_refs = [reference, *registry._fn_refs]
        registry._hook_order = [hook.name, *registry._hook_order]
    setattr(holder, attribute, wrapper)

    def take_out() -> None:
        for holder, attribute in list(_slots(module)):
            if getattr(holder, attribute, None) is wrapper:
                setattr(holder, attribute, reference.original_forward)
        is_own = getattr(vars(module).get("forward"), "__func__", None) is type(module).forward
        if is_own and not wrapper.had_forward:
            del module.forward
        if is_registered:
            _deregister(module, hook.name)

    return take_out


def _deregister(module: nn.Module, name: str) -> None:
    """Give the module a registry without this hook; an empty one stays, as diffusers' cache context leaves one."""
    registry: Any = module._diffusers_hook
    if name not in registry._hook_order:
        return
    index = registry._hook_order.index(name)
    # A thread that walks through the old registry's names still finds each hook there.
    kept = copy(registry)
    kept.hooks = {other: hook for other, hook in registry.hooks.items() if other != name}
    kept._hook_order = [*registry._hook_order[:index], *registry._hook_order[index + 1 :]]
    kept._fn_refs = [*registry._fn_refs[:index], *registry._fn_refs[index + 1 :]]
    module._diffusers_hook = kept


def _slots(module: nn.Module) -> Iterator[tuple[Any, str]]:
    """Owner and name of every attribute that may hold a forward function of the module, wrapped or bare."""
    registry = getattr(module, "_diffusers_hook", None)
    slots = [(module, "forward"), (module, "_old_forward")]  # accelerate keeps the inner one in `_old_forward`
    if registry is not None:
        for reference in registry._fn_refs:
            slots.extend([(reference, "forward"), (reference, "original_forward")])
    for holder, attribute in slots:
        yield holder, attribute
        inner = getattr(holder, attribute, None)
        while isinstance(inner, HookedForward):
            yield inner.reference, "original_forward"
            inner = inner.reference.original_forward


def _innermost_slot(module: nn.Module) -> tuple[Any, str]:
    """Owner and name of the attribute that holds the module's bare forward function, inside all wrappers."""
    holder, attribute = _slot_of_others(module)
    inner = getattr(holder, attribute)
    while isinstance(inner, HookedForward):
        holder = inner.reference
        attribute = "original_forward"
        inner = getattr(holder, attribute)
    return holder, attribute


def _slot_of_others(module: nn.Module) -> tuple[Any, str]:
    """The same, inside the wrappers of diffusers and accelerate."""
    registry = getattr(module, "_diffusers_hook", None)
    under_accelerate = "_old_forward" in vars(module)
    if registry is not None and registry._fn_refs:
        reference = registry._fn_refs[0]
        attribute = "forward" if reference.original_forward is None else "original_forward"
        inwards = getattr(getattr(reference, attribute), "func", None)
        # Of two wrappers the one that was put on first is inside, and holds the bare function.
        leads_to_accelerate = under_accelerate and getattr(inwards, "__module__", "") == "accelerate.hooks"
        if not leads_to_accelerate:
            return reference, attribute
    if under_accelerate:
        return module, "_old_forward"
    return module, "forward"
