"""The settings on a pipeline's transformers, and which serve a call: those of `accelerate`, `set` or `using`."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from galaxydit.config import GalaxyDiTConfig
from galaxydit.errors import GalaxyDiTError
from galaxydit.report import Report
from galaxydit.runtime.engine import Engine
from galaxydit.runtime.generation import Terms
from galaxydit.runtime.loop import Loop
from galaxydit.runtime.module_hooks import module_hooks
from galaxydit.runtime.registration import HookSet
from galaxydit.runtime.running_calls import RunningCalls
from galaxydit.runtime.session import Session


@dataclass(eq=False)
class Attachment:
    """One configuration on the transformers of a pipeline, as of one request (`Acceleration.using`).

    Attributes:
        engines: by component. settings: the `galaxydit.profiles.resolve.Settings` behind `terms`.
        hooks: below the transformers, once they are placed.
        is_former: neither set nor asked for any more, but under way.
        calls: number of calls that run now, in any thread.
    """

    session: Session
    terms: Terms
    engines: Mapping[str, Engine]
    settings: Any
    hooks: HookSet | None = field(default=None, init=False)
    is_former: bool = field(default=False, init=False)
    calls: int = field(default=0, init=False)

    def __repr__(self) -> str:
        asked = "settings by hand" if self.terms.goal is None else self.terms.goal.text
        return f"<Attachment: {asked}, {type(self.config.policy).__name__}>"

    @property
    def config(self) -> GalaxyDiTConfig:
        return self.terms.config

    @property
    def reports(self) -> list[Report]:
        """The reports of the generations with these settings, oldest first."""
        return self.session.reports(self)

    @property
    def report(self) -> Report:
        """The report of the last generation with these settings. Raises GalaxyDiTError before the first one."""
        if not self.reports:
            raise GalaxyDiTError("report does not exist yet: generate something first")
        return self.reports[-1]

    @property
    def is_under_way(self) -> bool:
        """Whether a generation with these settings has not ended."""
        return any(one.owner is self and one.is_under_way for one in tuple(self.session.generations))

    def place(self) -> None:
        if self.hooks is not None:
            return
        self.hooks = HookSet()
        for engine in self.engines.values():
            for path, hook in module_hooks(engine):
                self.hooks.add(engine.transformer.get_submodule(path), hook)

    def remove_hooks(self) -> None:
        if self.hooks is not None:
            self.hooks.remove()


_REQUESTS: ContextVar[tuple[Attachment, ...]] = ContextVar("galaxydit_requests", default=())


class Attachments:
    """The attachments of one acceleration: `base` is that of `accelerate` or the last `set`.

    Generations and hooks change under the lock of `calls`, and no change takes them from a call that runs.
    """

    def __init__(self, base: Attachment) -> None:
        self.base = base
        self.session = base.session
        self.calls = RunningCalls(self.session.lock)
        self.are_removed = False
        self._others: list[Attachment] = []  # of open `using` blocks, and former ones

    def wanted(self) -> Attachment:
        """The attachment for a generation that begins in this context."""
        for request in reversed(_REQUESTS.get()):
            if request in self._others:
                return request
        return self.base

    def current(self, loop: Loop | None) -> Attachment:
        """The attachment for a call of this thread: a generation keeps the settings that it began with."""
        generation = None if loop is None else loop.generation
        if generation is not None and not generation.finished:
            owner: Attachment = generation.owner
            return owner
        return self.wanted()

    def begin(self, loop: Loop | None) -> Attachment | None:
        """Begin a call: its attachment, with the hooks in place, until `end`; None if all were removed meanwhile. When
        a generation begins, former settings are removed."""
        self._close_former(loop)
        with self.calls.lock:
            self.calls.await_turn()
            if self.current(loop).hooks is None:
                self.calls.await_none()  # hooks are put on modules that other calls may be running
            if self.are_removed:  # while this thread waited
                return None
            current = self.current(loop)  # another thread may have changed it
            current.place()
            current.calls += 1
            self.calls.enter()
        return current

    def end(self, attachment: Attachment) -> None:
        """End a call, and make the changes that waited for its end."""
        with self.calls.lock:
            attachment.calls -= 1
            self.calls.leave()
        self.session.listener.tell()

    def _close_former(self, loop: Loop | None) -> None:
        with self.calls.lock:
            former = [attachment for attachment in self._others if attachment.is_former and not attachment.calls]
            if former:
                current = self.current(loop)
                for attachment in former:
                    if attachment is not current and not attachment.is_under_way:
                        self._close(attachment)
        self.session.listener.tell()

    def replace(self, begin: Callable[[], Attachment]) -> None:
        """Take another base; the former one stays for its generation that is under way."""
        with self.calls.lock:
            self.refuse_removed()
            former = self.base
            self.base = begin()
            if former.calls or former.is_under_way:  # its hooks are still needed
                self.session.warn_of_later(former)
                former.is_former = True
                self._others.append(former)
            else:
                self._close(former)
        self.session.listener.tell()

    @contextmanager
    def opened(self, begin: Callable[[], Attachment]) -> Iterator[Attachment]:
        """Context within which generations begin with a request's settings. It calls `begin` when it is entered."""
        with self.calls.lock:
            self.refuse_removed()
            request = begin()
            self._others.append(request)
        token = _REQUESTS.set((*_REQUESTS.get(), request))
        try:
            yield request
        finally:
            with suppress(ValueError):  # a generator may be closed in another context
                _REQUESTS.reset(token)
            with self.calls.lock:
                request.is_former = bool(request.calls)  # another thread goes on
                if request in self._others and not request.is_former:
                    self._close(request)
            self.session.listener.tell()

    def _close(self, attachment: Attachment) -> None:
        try:
            self.session.close(attachment)
        finally:
            if attachment in self._others:
                self._others.remove(attachment)
            self.calls.change(attachment.remove_hooks)

    def refuse_removed(self) -> None:
        if self.are_removed:
            raise GalaxyDiTError("this Acceleration was removed, so it does nothing; call accelerate() again")

    def remove(self, also: HookSet, then: Callable[[], None]) -> None:
        """Remove all, and these hooks, once no call runs; a call of this thread goes on with its settings. The next
        calls pass the hooks. `then` is called at the end."""

        def remove_all() -> None:
            with ExitStack() as stack:  # all of them, also if one raises an error
                stack.callback(then)
                stack.callback(also.remove)
                for attachment in (self.base, *self._others):
                    stack.callback(self._close, attachment)

        with self.calls.lock:
            also.disable()
            if self.are_removed:
                return
            self.are_removed = True
            self.calls.await_none()
            self.calls.change(remove_all)
        self.session.listener.tell()
