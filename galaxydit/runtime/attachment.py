"""The settings on a pipeline's transformers, and which serve a call: those of `accelerate`, `set` or `using`."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from galaxydit.config import GalaxyDiTConfig
from galaxydit.errors import GalaxyDiTError
from galaxydit.report import Report
from galaxydit.runtime.engine import Engine
from galaxydit.runtime.hooks import module_hooks
from galaxydit.runtime.registration import HookSet
from galaxydit.runtime.running_calls import RunningCalls
from galaxydit.runtime.session import Session

if TYPE_CHECKING:
    from galaxydit.profiles.settings import Settings


@dataclass(eq=False)
class Attachment:
    """One configuration on the transformers of a pipeline, as of one request (`Acceleration.using`)."""

    session: Session
    engines: Mapping[str, Engine]  # by component
    settings: "Settings"
    hooks: HookSet | None = field(default=None, init=False)  # below the transformers, once they are placed
    is_former: bool = field(default=False, init=False)  # neither set nor asked for any more, but under way
    calls: int = field(default=0, init=False)  # that run now, in any thread

    @property
    def config(self) -> GalaxyDiTConfig:
        return self.session.config

    @property
    def reports(self) -> list[Report]:
        """The reports of the generations with these settings, oldest first."""
        return self.session.reports

    @property
    def report(self) -> Report:
        """The report of the last generation with these settings. Raises GalaxyDiTError before the first one."""
        if not self.reports:
            raise GalaxyDiTError("report does not exist yet: generate something first")
        return self.reports[-1]

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

    Sessions and hooks change under the lock of `calls`, and no change takes them from a call that runs.
    """

    def __init__(self, base: Attachment) -> None:
        self.base, self.calls = base, RunningCalls(base.session.lock)
        self.are_removed = False
        self._others: list[Attachment] = []  # of open `using` blocks, and former ones

    def wanted(self) -> Attachment:
        """The attachment for a generation that begins in this context."""
        return next((one for one in reversed(_REQUESTS.get()) if one in self._others), self.base)

    def current(self, continues: Callable[[Attachment], bool] = lambda _: True) -> Attachment:
        """The attachment for the next call of this thread: a generation keeps the settings that it began with.
        `continues` says whether the call may belong to a generation of an attachment."""
        with self.calls.lock:
            wanted, thread = self.wanted(), threading.get_ident()
            # The requests of other asyncio tasks are left out.
            here = [one for one in self._others if one.is_former or one in _REQUESTS.get()]
            others = [one for one in (self.base, *here) if one is not wanted and one.session.is_under_way(thread)]
            if not others or (wanted.session.is_under_way(thread) and continues(wanted)):
                return wanted
            return next(filter(continues, others), wanted)

    def begin(self, continues: Callable[[Attachment], bool]) -> Attachment | None:
        """Begin a call: its attachment, with the hooks in place, until `end`; None if all were removed meanwhile. When
        a generation begins, former settings are removed."""
        self._close_former(continues)
        with self.calls.lock:
            self.calls.await_turn()
            if self.current(continues).hooks is None:
                self.calls.await_none()
            if self.are_removed:
                return None
            current = self.current(continues)  # another thread may have changed it
            current.place()
            current.calls += 1
            self.calls.enter()
        return current

    def end(self, attachment: Attachment) -> None:
        """End a call, and make the changes that waited for its end."""
        with self.calls.lock:
            attachment.calls -= 1
            self.calls.leave()
        self.base.session.listener.tell()

    def _close_former(self, continues: Callable[[Attachment], bool]) -> None:
        with self.calls.lock:
            former = [one for one in self._others if one.is_former and not one.calls]
            current = self.current(continues) if former else None
            for one in former:
                if one is not current and not one.session.is_under_way():
                    self._close(one)
        self.base.session.listener.tell()

    def replace(self, begin: Callable[[], Attachment]) -> None:
        """Take another base; the former one stays for its generation that is under way."""
        with self.calls.lock:
            self.refuse_removed()
            former, base = self.base, begin()
            base.session.add_text(former.session.text_seconds, former.session.text_joules)
            self.base = base
            if former.calls or former.session.is_under_way():
                former.session.note("settings that were set within this generation hold from the next generation on")
                former.is_former = True
                self._others.append(former)
            else:
                self._close(former)
        self.base.session.listener.tell()

    @contextmanager
    def opened(self, begin: Callable[[], Attachment]) -> Iterator[Attachment]:
        """Context within which generations begin with a request's settings; its reports then join those of `base`.

        It calls `begin` when it is entered, because the session of a context that is never entered would stay.
        """
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
            self.base.session.listener.tell()

    def _close(self, attachment: Attachment) -> None:
        try:
            attachment.session.retire()
        finally:
            if attachment in self._others:
                self._others.remove(attachment)
            self.calls.change(attachment.remove_hooks)
            if attachment is not self.base:
                self.base.session.adopt(attachment.reports)

    @property
    def reports(self) -> list[Report]:
        with self.calls.lock:
            former = [one for one in self._others if one.is_former]
            return [report for one in (self.base, *former) for report in one.reports]

    def refuse_removed(self) -> None:
        if self.are_removed:
            raise GalaxyDiTError("this Acceleration was removed, so it does nothing; call accelerate() again")

    def remove(self, also: HookSet) -> None:
        """Remove all, and these hooks, once no call runs; a call of this thread goes on with its settings. The next
        calls pass the hooks."""

        def remove_all() -> None:
            with ExitStack() as stack:  # all of them, also if one raises an error
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
        self.base.session.listener.tell()
