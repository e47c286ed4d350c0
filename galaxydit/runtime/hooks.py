"""The hooks through which the engine acts on one transformer, and whether generations reached them."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from diffusers.hooks.hooks import BaseState, CacheContext, StateManager
from torch import nn

from galaxydit.errors import GalaxyDiTError
from galaxydit.other_caches import forward_of_another, refuse_other_caches
from galaxydit.proxies import Place
from galaxydit.runtime.engine import Engine
from galaxydit.runtime.recognition import blocks_of, unwrap_compiled
from galaxydit.runtime.registration import HookSet, PluginHook, hook_of
from galaxydit.stopwatch import Stopwatch
from galaxydit.torch_compile import around_the_model, beside_the_model

if TYPE_CHECKING:
    from galaxydit.runtime.attachment import Attachment, Attachments


class ThreadContexts(threading.local, StateManager):
    """diffusers' cache context of each thread; the base class has one for all, so that threads read each other's."""


class RootHook(PluginHook):
    """Runs each call through the engine that serves it, and receives diffusers' cache context. `detach` removes all
    hooks of one `accelerate`; `around` is the last call's `forward`, which may be one that calls ours."""

    _is_stateful = True

    def __init__(self, component: str, attachments: "Attachments", hooks: HookSet, detach: Callable[[], None]) -> None:
        super().__init__()
        self.component, self.attachments, self.hooks, self.detach = component, attachments, hooks, detach
        self.contexts = ThreadContexts(BaseState)
        self.around: Any | None = None
        self._blocks = self._blocks_of(self.choose())

    def choose(self) -> Engine:
        """The engine for the next call of this thread."""
        return self.attachments.current().engines[self.component]

    def refuse_cache(self, *_: Any, **__: Any) -> None:
        """Stands in for `enable_cache` of the transformer."""
        raise GalaxyDiTError(
            f"{self.component}.enable_cache() is not allowed beside galaxydit: expected one cache",
            "call remove() on the Acceleration first",
        )

    def new_forward(self, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if self.removed:
            return self.fn_ref.original_forward(*args, **kwargs)
        if getattr(torch.compiler, "is_exporting", bool)():
            raise GalaxyDiTError("an accelerated model cannot be exported", "call remove() on its Acceleration first")
        return self._run(module, *args, **kwargs)

    @around_the_model
    def _run(self, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        forward, attachment = self.fn_ref.original_forward, self._begin(args, kwargs)
        if attachment is None:
            return forward(*args, **kwargs)
        try:
            engine = attachment.engines[self.component]
            self._refuse_changed(module, engine)
            self.around = vars(module).get("forward")
            self.hooks.timesteps = getattr(engine.session.source.scheduler, "timesteps", None)
            return engine.run_transformer(self._context(), forward, args, kwargs)
        finally:
            self._end(attachment)

    @beside_the_model
    def _begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> "Attachment | None":
        def continues(attachment: "Attachment") -> bool:
            return attachment.engines[self.component].continues(self._context(), args, kwargs)

        return self.attachments.begin(continues)

    @beside_the_model
    def _end(self, attachment: "Attachment") -> None:
        self.attachments.end(attachment)

    @beside_the_model
    def _refuse_changed(self, module: nn.Module, engine: Engine) -> None:
        """Raise GalaxyDiTError if another cache is on the transformer, or if hooked blocks were replaced."""
        component, blocks = self.component, self._blocks_of(engine)
        refuse_other_caches(component, module, is_accelerated=True)
        hooked = blocks[: len(engine.stack.hooked_blocks)]
        if blocks != self._blocks or any(forward_of_another(block) is not None for block in hooked):
            raise GalaxyDiTError(
                f"blocks of {component}, or their forward functions, were replaced after accelerate(), as by another "
                "cache: expected the same blocks",
                "undo this (cache-dit: `cache_dit.disable_cache(pipe)`), or call remove() on the Acceleration first",
            )

    @staticmethod
    def _blocks_of(engine: Engine) -> list[nn.Module]:
        return [unwrap_compiled(block) for block in blocks_of(engine.transformer, engine.family)]

    def _context(self) -> CacheContext | None:
        try:
            return self.contexts.context
        except ValueError:
            return None

    def reset_state(self, module: nn.Module) -> nn.Module:
        """End the generation; pipelines call this after a generation without an error."""
        self.contexts.reset()
        self.choose().end_generation()
        return module


@contextmanager
def timed_by(transformer: nn.Module, watch: Stopwatch) -> Iterator[None]:
    """Context manager within which an acceleration of this transformer reports by `watch`, the caller's."""
    hook = hook_of(transformer)
    session = hook.choose().session if isinstance(hook, RootHook) else None
    if session is not None:
        session.watch = watch
    try:
        yield
    finally:
        if session is not None:
            session.watch = None


class PlacedHook(PluginHook):
    """Hook on a block, a part of the first block, or an observed module. `run` is the engine's `Stack.run_block`,
    `run_part` or `run_module`; `place` is the block's index, the part's key in `Family.parts`, or the module's path."""

    def __init__(self, run: Callable[..., Any], place: Any) -> None:
        super().__init__()
        self.run = run
        self.place = place

    @around_the_model
    def new_forward(self, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if self.removed:
            return self.fn_ref.original_forward(*args, **kwargs)
        return self.run(self.place, self.fn_ref.original_forward, args, kwargs)


def module_hooks(engine: Engine) -> Iterator[tuple[str, PlacedHook]]:
    family, stack = engine.family, engine.stack
    paths = [f"{name}.{index}" for name in family.stacks for index in range(len(getattr(engine.transformer, name)))]
    for index in stack.hooked_blocks:
        yield paths[index], PlacedHook(stack.run_block, index)
    parts = dict.fromkeys((proxy.part, proxy.place is Place.MODULE) for proxy in stack.watched_proxies if proxy.part)
    for part, is_path in parts:
        if not is_path:
            yield f"{paths[0]}.{family.parts[part]}", PlacedHook(stack.run_part, part)
    for path in dict.fromkeys([*engine.observer.modules, *(part for part, is_path in parts if is_path)]):
        yield path, PlacedHook(stack.run_module, path)


def replaced(pipe: Any, transformers: Mapping[str, nn.Module], hooks: HookSet) -> str:
    """Error text if a hooked transformer was replaced in the pipeline, else an empty string."""
    if isinstance(pipe, nn.Module) or not hooks.are_attached:
        return ""
    for name, transformer in transformers.items():
        now = getattr(pipe, name, None)
        if isinstance(now, nn.Module) and all(module is not transformer for module in now.modules()):
            return (
                f"{type(pipe).__name__}.{name} was replaced after accelerate(), so galaxydit is not on it: "
                "call remove() on the Acceleration, and accelerate(pipe) again"
            )
    return ""


def missed(pipe: Any, transformers: Mapping[str, nn.Module], hooks: HookSet, timesteps: Any) -> str:
    """Why the pipeline's last generation did not reach the plugin, else an empty string. The scheduler's `timesteps`
    show that one ran: they were set anew since the last call of a hooked transformer."""
    if hooks.are_attached and timesteps is not hooks.timesteps:
        for name, transformer in transformers.items():
            reached = getattr(hook_of(transformer), "around", None)
            if forward_of_another(transformer) is not None and vars(transformer)["forward"] is not reached:
                return (
                    f"{name}.forward was replaced after accelerate(), so a generation ran without galaxydit: undo "
                    f"this (`del {name}.forward`), call remove() on the Acceleration, and accelerate(pipe) again"
                )
    return replaced(pipe, transformers, hooks)
