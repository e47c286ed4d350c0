"""The diffusers hooks that let a session act on one transformer."""

import time
from collections.abc import Callable
from typing import Any

from diffusers.hooks import HookRegistry, ModelHook
from diffusers.hooks.hooks import BaseState, CacheContext, StateManager
from torch import Tensor, nn

from galaxydit.compilation import around_the_model, hook_around_compiled
from galaxydit.engine import Engine
from galaxydit.errors import GalaxyDiTError
from galaxydit.hook_chain import insert_innermost, is_hooked
from galaxydit.session import Session, synchronize

HOOK_NAME = "galaxydit"


class PluginHook(ModelHook):
    """What all hooks of the plugin have in common."""

    name = HOOK_NAME

    def __reduce__(self) -> tuple[Any, ...]:
        raise GalaxyDiTError(
            "an accelerated model cannot be copied or pickled: the hooks of the copy would run the original; call "
            "remove() on its Acceleration first"
        )


class RootHook(PluginHook):
    """On the transformer: opens and closes a call. Its StateManager receives diffusers' cache context."""

    _is_stateful = True

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self.engine = engine
        self.contexts = StateManager(BaseState)

    @around_the_model
    def new_forward(self, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return self.engine.run_transformer(self._context(), self.fn_ref.original_forward, args, kwargs)

    def _context(self) -> CacheContext | None:
        try:
            return self.contexts.context
        except ValueError:
            return None

    def reset_state(self, module: nn.Module) -> nn.Module:
        """Called by pipelines when a generation has ended well."""
        self.contexts.reset()
        self.engine.forget()
        return module


class FirstBlockHook(PluginHook):
    """On the first block: reads proxies around it."""

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self.engine = engine

    @around_the_model
    def new_forward(self, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return self.engine.run_first_block(self.fn_ref.original_forward, args, kwargs)


class StackBlockHook(PluginHook):
    """On every later block, where the residual is reused: hands the hidden states on while the stack is skipped."""

    def __init__(self, engine: Engine, is_last: bool) -> None:
        super().__init__()
        self.engine = engine
        self.is_last = is_last

    @around_the_model
    def new_forward(self, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return self.engine.run_later_block(self.fn_ref.original_forward, args, kwargs, self.is_last)


class PartHook(PluginHook):
    """On a part of the first block: reads the proxies at its input and output."""

    def __init__(self, engine: Engine, input_proxy: str | None, output_proxy: str) -> None:
        super().__init__()
        self.engine = engine
        self.input_proxy = input_proxy
        self.output_proxy = output_proxy

    @around_the_model
    def new_forward(self, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if self.input_proxy is not None:
            self.engine.read(self.input_proxy, (args[0] if args else kwargs["hidden_states"]).clone)
        output = self.fn_ref.original_forward(*args, **kwargs)
        self.engine.read(self.output_proxy, (output if isinstance(output, Tensor) else output[0]).clone)
        return output


class ClockHook(PluginHook):
    """On the text encoder and the VAE's decoder: how long text takes, and when a video is decoded."""

    def __init__(self, session: Session, *, encodes_text: bool) -> None:
        super().__init__()
        self.session = session
        self.encodes_text = encodes_text
        self.name = f"{HOOK_NAME} clock {id(session):x}"  # pipelines share text encoders and VAEs

    @around_the_model
    def new_forward(self, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        output = self.fn_ref.original_forward(*args, **kwargs)
        first = (
            output
            if isinstance(output, Tensor)
            else next(iter(output.values()) if hasattr(output, "values") else iter(output))
        )
        synchronize(first.device)
        if self.encodes_text:
            self.session.text_encoded(time.perf_counter() - start)
        else:
            self.session.decoded()
        return output


class HookSet:
    """Hooks registered together and removed together, leaving every module as it was."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []
        self._roots: list[nn.Module] = []

    def add(self, module: nn.Module, hook: PluginHook) -> None:
        """Register a hook on a module through diffusers' registry, or around the module if it is compiled.

        The hook of a transformer is always registered: that is how diffusers' cache context finds it. So is one on a
        module that has hooks of others: what they prepare lies inside the compiled call.
        """
        compiled = getattr(module, "_compiled_call_impl", None) is not None
        if compiled and not isinstance(hook, RootHook) and not is_hooked(module):
            self._undo.append(hook_around_compiled(module, hook))
        else:
            self._undo.append(insert_innermost(module, hook, hook.name))

    def refresh(self, root: nn.Module) -> None:
        """Tell diffusers that the hooks below `root` have changed: it keeps a list of them."""
        if root not in self._roots:
            self._roots.append(root)
        if hasattr(root, "_diffusers_hook"):
            HookRegistry.check_if_exists_or_initialize(root).invalidate_child_registries_cache()

    def remove(self) -> None:
        """Undo everything, newest first."""
        while self._undo:
            self._undo.pop()()
        for root in self._roots:
            self.refresh(root)
