"""Register the plugin's hooks in diffusers' registries, innermost: nearest to the module's own forward function. Only
this file and galaxydit/other_caches.py use private fields of diffusers' hooks.
"""

from collections.abc import Callable, Iterable
from functools import update_wrapper
from typing import Any

from diffusers.hooks import HookRegistry, ModelHook
from diffusers.hooks.hooks import HookFunctionReference
from torch import nn

from galaxydit.errors import GalaxyDiTError
from galaxydit.other_caches import HookedForward
from galaxydit.torch_compile import hook_around_compiled

HOOK_NAME = "galaxydit"


class PluginHook(ModelHook):
    """A hook that refuses copies and pickles; if `removed`, it runs what is beneath, as wrappers may call it."""

    name = HOOK_NAME
    removed = False

    def __reduce__(self) -> tuple[Any, ...]:
        raise GalaxyDiTError(
            "an accelerated model cannot be copied or pickled: the hooks of the copy would run the original; call "
            "remove() on its Acceleration first"
        )


class HookSet:
    """Hooks registered and removed together; `timesteps` is the scheduler's tensor at the last transformer call."""

    def __init__(self, roots: Iterable[nn.Module] = ()) -> None:
        self._hooks: list[tuple[PluginHook, Callable[[], None]]] = []  # with the function that removes it
        self._roots = list(roots)
        self.timesteps: Any | None = None

    def add(self, module: nn.Module, hook: PluginHook, *, is_root: bool = False) -> None:
        """Register a hook through diffusers' registry, or around a compiled module. A transformer (`is_root`) always
        uses the registry, where diffusers' cache context finds it; so does a module with other hooks, because these
        prepare inputs inside the compiled call.
        """
        if is_root:
            self._roots.append(module)
        is_compiled = getattr(module, "_compiled_call_impl", None) is not None
        is_around = is_compiled and not is_root and not is_hooked(module)
        self._hooks.append((hook, (hook_around_compiled if is_around else insert_innermost)(module, hook)))

    def refresh(self) -> None:
        """Tell diffusers, which caches a list of the hooks below each transformer, that they have changed."""
        for root in self._roots:
            if hasattr(root, "_diffusers_hook"):
                HookRegistry.check_if_exists_or_initialize(root).invalidate_child_registries_cache()

    @property
    def are_attached(self) -> bool:
        return bool(self._hooks)

    def remove(self) -> None:
        for hook, _ in self._hooks:
            hook.removed = True
        while self._hooks:
            _, undo = self._hooks.pop()
            undo()
        self.refresh()


def hook_of(module: nn.Module) -> ModelHook | None:
    """The plugin's hook on a transformer; None where the plugin is not attached."""
    registry = getattr(module, "_diffusers_hook", None)
    return None if registry is None else registry.get_hook(HOOK_NAME)


def is_hooked(module: nn.Module) -> bool:
    """Whether hooks of diffusers or accelerate are on the module."""
    registry = getattr(module, "_diffusers_hook", None)
    return "_old_forward" in vars(module) or bool(registry is not None and registry.hooks)


def insert_innermost(module: nn.Module, hook: PluginHook) -> Callable[[], None]:
    """Register a hook innermost; return the function that removes it, whatever was registered around it since. Other
    hooks prepare its tensors (context parallelism), accelerate drops wrappers around its hook when it offloads again,
    and diffusers 0.42 disconnects a hook with `new_forward` when the hook beneath is removed.
    """
    before = hasattr(module, "_diffusers_hook"), "forward" in vars(module)
    registry = HookRegistry.check_if_exists_or_initialize(module)
    # Kept at the registry, because another acceleration may be on a module that two pipelines share.
    had_registry, had_forward = vars(registry).setdefault("before_galaxydit", before)
    holder, attribute = _innermost_slot(module, registry)
    beneath = getattr(holder, attribute)
    wrapper = update_wrapper(HookedForward(hook.new_forward, module), beneath)
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
        if not any(isinstance(other, PluginHook) for other in registry.hooks.values()):
            del registry.before_galaxydit
        if not registry.hooks and not had_registry:
            del module._diffusers_hook

    return take_out


def _slots(module: nn.Module, registry: HookRegistry) -> list[tuple[Any, str]]:
    """Owner and name of every attribute that may hold a forward function of the module, wrapped or bare."""
    of_hooks = [(reference, name) for reference in registry._fn_refs for name in ("forward", "original_forward")]
    return [(module, "forward"), (module, "_old_forward"), *of_hooks]


def _innermost_slot(module: nn.Module, registry: HookRegistry) -> tuple[Any, str]:
    """Owner and name of the attribute that holds the module's bare forward function, inside all wrappers."""
    under_accelerate = "_old_forward" in vars(module)
    if registry._fn_refs:
        reference = registry._fn_refs[0]
        attribute = "forward" if reference.original_forward is None else "original_forward"
        inwards = getattr(reference, attribute)
        if not (under_accelerate and getattr(getattr(inwards, "func", None), "__module__", "") == "accelerate.hooks"):
            return reference, attribute
    return module, "_old_forward" if under_accelerate else "forward"
