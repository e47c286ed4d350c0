"""The hooks through which the engine acts on one transformer, and the hook that notices a replaced transformer."""

import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from diffusers.hooks.hooks import BaseState, CacheContext, StateManager
from torch import nn

from galaxydit.errors import FullComputeWarning
from galaxydit.runtime.engine import Engine
from galaxydit.runtime.registration import HOOK_NAME, HookSet, PluginHook, refuse_other_caches
from galaxydit.torch_compile import around_the_model


class ThreadContexts(StateManager):
    """diffusers' cache context of each thread; the base class has one for all, so that threads read each other's."""

    def __init__(self) -> None:
        self._thread = threading.local()
        super().__init__(BaseState)

    @property
    def _context(self) -> CacheContext | None:
        return getattr(self._thread, "context", None)

    @_context.setter
    def _context(self, context: CacheContext | None) -> None:
        self._thread.context = context


class RootHook(PluginHook):
    """Hook on the transformer: runs each call through `engine`. Its StateManager receives diffusers' cache context.

    `hooks` are all hooks that one `accelerate` has attached, so that they can be removed without its `Acceleration`.
    """

    _is_stateful = True

    def __init__(self, engine: Engine, hooks: HookSet) -> None:
        super().__init__()
        self.engine = engine
        self.hooks = hooks
        self.contexts = ThreadContexts()

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
        """End the generation; pipelines call this when a generation has ended without an error."""
        self.contexts.reset()
        self.engine.end_generation()
        return module


class PlacedHook(PluginHook):
    """Hook on a block, on a part of the first block (such as its self-attention), or on a module outside the blocks
    whose output the observer receives.

    `run` is the method of the engine's `Stack` (galaxydit/runtime/stack.py) that runs it: `run_block`, `run_part` or
    `run_module`. `place` is accordingly the block's index, the part's key in `Family.parts`, or the module's path.
    """

    def __init__(self, run: Callable[..., Any], place: Any) -> None:
        super().__init__()
        self.run = run
        self.place = place

    @around_the_model
    def new_forward(self, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return self.run(self.place, self.fn_ref.original_forward, args, kwargs)


class ReplacementHook(PluginHook):
    """Hook on a text encoder or the VAE's decoder: warns if the pipeline's transformer was replaced after `accelerate`.

    `replaced` returns the text of the warning; an empty string if no transformer was replaced. The hook raises no
    error, because another pipeline may share the encoder or the VAE.
    """

    def __init__(self, replaced: Callable[[], str]) -> None:
        super().__init__()
        self.replaced = replaced
        self.name = f"{HOOK_NAME} replacement {id(self):x}"  # pipelines share text encoders and VAEs

    def new_forward(self, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if not torch.compiler.is_compiling() and (text := self.replaced()):
            warnings.warn(f"galaxydit: {text}", FullComputeWarning, stacklevel=2)
        return self.fn_ref.original_forward(*args, **kwargs)


def module_hooks(engine: Engine) -> Iterator[tuple[str, PlacedHook]]:
    """Paths of modules below the transformer, each with the hook that the engine needs there."""
    family, stack = engine.family, engine.stack
    paths = [f"{name}.{index}" for name in family.stacks for index in range(len(getattr(engine.transformer, name)))]
    for index in stack.hooked_blocks:
        yield paths[index], PlacedHook(stack.run_block, index)
    for part in dict.fromkeys(proxy.part for proxy in stack.watched_proxies if proxy.part is not None):
        yield f"{paths[0]}.{family.parts[part]}", PlacedHook(stack.run_part, part)
    for path in engine.observer.modules:
        yield path, PlacedHook(stack.run_module, path)
