"""The hooks through which the engine acts on one transformer, and whether generations reached them."""

import inspect
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from diffusers.hooks.hooks import BaseState, CacheContext, StateManager
from torch import Tensor, nn

from galaxydit.errors import GalaxyDiTError
from galaxydit.other_caches import forward_of_another, refuse_other_caches
from galaxydit.runtime.attachment import Attachment, Attachments
from galaxydit.runtime.call import Call, StepInfo
from galaxydit.runtime.engine import Engine
from galaxydit.runtime.generation import Generation
from galaxydit.runtime.loop_watch import LoopWatch
from galaxydit.runtime.placing import place
from galaxydit.runtime.recognition import blocks_of, unwrap_compiled
from galaxydit.runtime.registration import HookSet, PluginHook, hook_of
from galaxydit.runtime.session import Session
from galaxydit.runtime.undeclared import FAILED, UndeclaredError
from galaxydit.runtime.window import Window
from galaxydit.stopwatch import Stopwatch
from galaxydit.torch_compile import around_the_model, beside_the_model


class ThreadContexts(threading.local, StateManager):
    """diffusers' cache context of each thread; the base class has one for all, so that threads read each other's."""


class RootHook(PluginHook):
    """Finds the place of each call of a transformer, and runs it through the engine of its generation's settings. It
    receives diffusers' cache context.

    `detach` removes all hooks of one `accelerate`; `around` is the last call's `forward`, which may be one that calls
    ours.
    """

    _is_stateful = True

    def __init__(
        self, component: str, attachments: Attachments, watch: LoopWatch, hooks: HookSet, detach: Callable[[], None]
    ) -> None:
        super().__init__()
        self.component = component
        self.attachments = attachments
        self.watch = watch
        self.hooks = hooks
        self.detach = detach
        self.contexts = ThreadContexts(BaseState)
        self.around: Any | None = None
        engine = attachments.base.engines[component]
        self._transformer = engine.transformer
        self._family = engine.family
        # The class's own signature, because wrappers of the instance's forward hide the names.
        self._inputs = list(inspect.signature(type(engine.transformer).forward).parameters)[1:]
        self._blocks = self._blocks_now()

    @property
    def session(self) -> Session:
        return self.attachments.session

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
        forward = self.fn_ref.original_forward
        inputs = dict(zip(self._inputs, args, strict=False)) | kwargs
        owner, placed = self._begin(inputs)
        if owner is None:
            return forward(*args, **kwargs)
        try:
            engine = self._checked(owner, module)
            if isinstance(placed, UndeclaredError):
                self._leave_unknown(str(placed), engine, owner, inputs.get("hidden_states"))
                return forward(*args, **kwargs)
            return engine.run(*placed, self._generation(owner, placed[0]), forward, args, kwargs)
        except BaseException:
            # How far the call got is unknown, so nothing tells the place of the next one.
            loop = self.watch.loop
            if loop is not None:
                loop.undeclare(FAILED.format(what="a call of the transformer"))
            raise
        finally:
            self._end(owner)

    @beside_the_model
    def _begin(self, inputs: dict[str, Any]) -> tuple[Attachment | None, tuple[Call, Window] | UndeclaredError]:
        """The settings that serve a call, and its place, or why this is unknown."""
        context = self._context()
        try:
            loop = self.watch.find(context)
            self.watch.pair(loop, self._family.streams)
            source = self.session.source
            placed = place(loop, self.component, self._transformer, self._family, source, context, inputs)
        except UndeclaredError as error:
            return self.attachments.begin(self.watch.loop), error
        return self.attachments.begin(loop), placed

    @beside_the_model
    def _end(self, owner: Attachment) -> None:
        self.attachments.end(owner)

    @beside_the_model
    def _generation(self, owner: Attachment, call: Call) -> Generation:
        """The generation of a call, which begins with the first call of its loop."""
        loop = self.watch.loop
        assert loop is not None  # it has placed the call
        generation: Generation | None = loop.generation
        if generation is None or generation.finished:
            generation = self.session.open(loop, owner, owner.terms, call.info, call.latent)
        return generation

    @beside_the_model
    def _leave_unknown(self, text: str, engine: Engine, owner: Attachment, latent: Any) -> None:
        """Warn of a call whose place is unknown, and note it in the report of its loop."""
        loop = self.watch.loop
        generation = self.session.latest() if loop is None else loop.generation
        if loop is not None and generation is None and not loop.is_over and isinstance(latent, Tensor):
            info = StepInfo(0, loop.steps_planned, 1.0)
            generation = self.session.open(loop, owner, owner.terms, info, latent)
        if generation is None:
            self.session.warn(text)
        else:
            self.session.warn_and_note(text, of=generation)
            self.session.leave_unknown(generation, self.component, engine.stack.blocks)
        # Ranks that share the weights wait for the decision of this one.
        engine.agree_to_compute()

    @beside_the_model
    def _checked(self, owner: Attachment, module: nn.Module) -> Engine:
        """The engine of a call. Raises GalaxyDiTError if another cache is on the transformer, or if hooked blocks were
        replaced."""
        # By these two, `missed` sees later whether a generation came this way.
        self.around = vars(module).get("forward")
        self.hooks.timesteps = getattr(self.session.source.scheduler, "timesteps", None)
        engine = owner.engines[self.component]
        refuse_other_caches(self.component, module, is_accelerated=True)
        blocks = self._blocks_now()
        hooked = blocks[: len(engine.stack.hooked_blocks)]
        if blocks != self._blocks or any(forward_of_another(block) is not None for block in hooked):
            raise GalaxyDiTError(
                f"blocks of {self.component}, or their forward functions, were replaced after accelerate(), as by "
                "another cache: expected the same blocks",
                "undo this (cache-dit: `cache_dit.disable_cache(pipe)`), or call remove() on the Acceleration first",
            )
        return engine

    def _blocks_now(self) -> list[nn.Module]:
        return [unwrap_compiled(block) for block in blocks_of(self._transformer, self._family)]

    def _context(self) -> CacheContext | None:
        try:
            return self.contexts.context
        except ValueError:
            return None

    def reset_state(self, module: nn.Module) -> nn.Module:
        """End the generation; pipelines call this after a generation without an error."""
        self.contexts.reset()
        loop = self.watch.loop
        owner = self.attachments.current(loop)
        self.session.end(loop)
        self.watch.end()
        owner.engines[self.component].observer.on_end()
        self.session.listener.tell()
        return module


@contextmanager
def timed_by(transformer: nn.Module, watch: Stopwatch) -> Iterator[None]:
    """Context manager within which an acceleration of this transformer reports by `watch`, the caller's."""
    hook = hook_of(transformer)
    session = hook.session if isinstance(hook, RootHook) else None
    if session is not None:
        session.watch = watch
    try:
        yield
    finally:
        if session is not None:
            session.watch = None


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
