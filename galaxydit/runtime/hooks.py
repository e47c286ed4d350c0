"""The diffusers hooks through which the engine acts on one transformer."""

import time
import warnings
from collections.abc import Callable, Iterable
from functools import partial, update_wrapper
from typing import Any

import torch
from diffusers.hooks import HookRegistry, ModelHook
from diffusers.hooks.hooks import BaseState, CacheContext, HookFunctionReference, StateManager
from torch import Tensor, nn

from galaxydit.errors import FullComputeWarning, GalaxyDiTError
from galaxydit.runtime.engine import Engine
from galaxydit.runtime.session import Session, synchronize
from galaxydit.torch_compile import around_the_model, hook_around_compiled

HOOK_NAME = "galaxydit"


class PluginHook(ModelHook):
    """Base class of the hooks of the plugin."""

    name = HOOK_NAME

    def __reduce__(self) -> tuple[Any, ...]:
        raise GalaxyDiTError(
            "an accelerated model cannot be copied or pickled: the hooks of the copy would run the original; call "
            "remove() on its Acceleration first"
        )


class RootHook(PluginHook):
    """On the transformer: runs a call. Its StateManager receives diffusers' cache context.

    `hooks` are all hooks of the same acceleration, so that it can be removed without its handle.
    """

    _is_stateful = True

    def __init__(self, engine: Engine, hooks: "HookSet") -> None:
        super().__init__()
        self.engine = engine
        self.hooks = hooks
        self.contexts = StateManager(BaseState)

    @around_the_model
    def new_forward(self, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        refuse_other_caches(self.engine.component, module)
        return self.engine.run_transformer(self._context(), self.fn_ref.original_forward, args, kwargs)

    def _context(self) -> CacheContext | None:
        try:
            return self.contexts.context
        except ValueError:
            return None

    def reset_state(self, module: nn.Module) -> nn.Module:
        """Called by pipelines when a generation has ended well."""
        self.contexts.reset()
        self.engine.end_generation()
        return module


class PlacedHook(PluginHook):
    """On a module below the transformer.

    `run` is the method of the engine that runs such modules: `run_block`, `run_part` or `run_module`; `place` is what
    the engine calls this one by.
    """

    def __init__(self, run: Callable[..., Any], place: Any) -> None:
        super().__init__()
        self.run = run
        self.place = place

    @around_the_model
    def new_forward(self, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return self.run(self.place, self.fn_ref.original_forward, args, kwargs)


class TimerHook(PluginHook):
    """On a text encoder or the VAE's decoder: adds up the seconds of text encoding, or stores when decoding ended.

    `replaced` returns a text if a transformer of the pipeline was replaced, else "". The hook warns with it, and raises
    nothing, because another pipeline may share the encoder.
    """

    def __init__(self, session: Session, replaced: Callable[[], str], *, encodes_text: bool) -> None:
        super().__init__()
        self.session = session
        self.replaced = replaced
        self.encodes_text = encodes_text
        self.name = f"{HOOK_NAME} timer {id(session):x}"  # pipelines share text encoders and VAEs

    def new_forward(self, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():  # decode() compiled as one full graph, which a clock would break
            return self.fn_ref.original_forward(*args, **kwargs)
        return self._timed(*args, **kwargs)

    @around_the_model
    def _timed(self, *args: Any, **kwargs: Any) -> Any:
        if text := self.replaced():
            warnings.warn(f"galaxydit: {text}", FullComputeWarning, stacklevel=2)
        start = time.perf_counter()
        output = self.fn_ref.original_forward(*args, **kwargs)
        parts = (output,) if isinstance(output, Tensor) else getattr(output, "values", lambda: output)()
        for tensor in parts if isinstance(parts, Iterable) else ():
            if isinstance(tensor, Tensor):
                synchronize(tensor.device)
                break
        if self.encodes_text:
            self.session.text_seconds += time.perf_counter() - start
        else:
            self.session.decoded()
        return output


def refuse_other_caches(component: str, transformer: nn.Module) -> None:
    """Raise GalaxyDiTError if a cache of diffusers is on the transformer, however it was enabled."""
    kind = type(transformer._cache_config).__name__ if getattr(transformer, "is_cache_enabled", False) else ""
    for registry in _registries(transformer):
        kind = kind or next((type(hook).__name__ for hook in registry.hooks.values() if _is_cache(hook)), "")
    if kind:
        raise GalaxyDiTError(
            f"{component} has the cache {kind} enabled: expected none beside galaxydit; call "
            f"{component}.disable_cache(), or remove galaxydit first"
        )


def _registries(transformer: nn.Module) -> list[HookRegistry]:
    """The registries of the transformer and of the modules below it, from diffusers' own list where it keeps one."""
    own = getattr(transformer, "_diffusers_hook", None)
    if own is None:
        return [module._diffusers_hook for module in transformer.modules() if hasattr(module, "_diffusers_hook")]
    return [own, *own._get_child_registries()]


def _is_cache(hook: ModelHook) -> bool:
    module = type(hook).__module__
    return module.startswith("diffusers.") and module.endswith(("_cache", "pyramid_attention_broadcast"))


class HookSet:
    """Hooks that are registered together and removed together, which leaves every module as it was."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []
        self._roots: list[nn.Module] = []

    def add(self, module: nn.Module, hook: PluginHook) -> None:
        """Register a hook on a module through diffusers' registry, or around the module if it is compiled.

        The hook of a transformer is always registered, because diffusers' cache context finds it there. So is a hook on
        a module with other hooks, because what those prepare lies inside the compiled call.
        """
        if isinstance(hook, RootHook):
            self._roots.append(module)
        compiled = getattr(module, "_compiled_call_impl", None) is not None
        if compiled and not isinstance(hook, RootHook) and not is_hooked(module):
            self._undo.append(hook_around_compiled(module, hook))
        else:
            self._undo.append(insert_innermost(module, hook))

    def refresh(self) -> None:
        """Tell diffusers, which caches a list of the hooks below each transformer, that they have changed."""
        for root in self._roots:
            if hasattr(root, "_diffusers_hook"):
                HookRegistry.check_if_exists_or_initialize(root).invalidate_child_registries_cache()

    @property
    def are_attached(self) -> bool:
        """Whether there is anything to remove."""
        return bool(self._undo)

    def remove(self) -> None:
        """Undo everything, newest first."""
        while self._undo:
            self._undo.pop()()
        self.refresh()


def is_hooked(module: nn.Module) -> bool:
    """Whether hooks of diffusers or accelerate are on the module."""
    registry = getattr(module, "_diffusers_hook", None)
    return "_old_forward" in vars(module) or bool(registry is not None and registry.hooks)


def insert_innermost(module: nn.Module, hook: PluginHook) -> Callable[[], None]:
    """Register a hook innermost in the module's diffusers registry; returns the function that removes it, whatever was
    registered around it since.

    Three reasons ask for that place: hooks of others prepare what ours read (context parallelism splits a block's
    input), accelerate drops every wrapper around its own when it offloads anew after each generation, and diffusers
    0.42 disconnects a hook that has a `new_forward` when the one beneath it is removed.
    """
    before = hasattr(module, "_diffusers_hook"), "forward" in vars(module)
    registry = HookRegistry.check_if_exists_or_initialize(module)
    # Kept at the registry, because another acceleration may be on a module that two pipelines share.
    had_registry, had_forward = vars(registry).setdefault("before_galaxydit", before)
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
        if not any(isinstance(other, PluginHook) for other in registry.hooks.values()):
            del registry.before_galaxydit
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
