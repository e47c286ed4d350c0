"""The settings on a pipeline's transformers, and which serve a call: those of `accelerate`, `set` or `using`."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field

from galaxydit.config import GalaxyDiTConfig
from galaxydit.errors import GalaxyDiTError
from galaxydit.report import Report
from galaxydit.runtime.engine import Engine
from galaxydit.runtime.hooks import module_hooks
from galaxydit.runtime.registration import HOOK_NAME, HookSet
from galaxydit.runtime.session import Session


@dataclass(eq=False)
class Attachment:
    """One configuration on the transformers of a pipeline, as of one request (`Acceleration.using`)."""

    session: Session
    engines: Mapping[str, Engine]  # by component
    hooks: HookSet | None = field(default=None, init=False)  # below the transformers, once they are placed
    is_former: bool = field(default=False, init=False)  # a former base with a generation under way

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
        self.hooks = HookSet(engine.transformer for engine in self.engines.values())
        for engine in self.engines.values():
            for path, hook in module_hooks(engine):
                hook.name = f"{HOOK_NAME} {id(self):x}"
                self.hooks.add(engine.transformer.get_submodule(path), hook)
        self.hooks.refresh()

    def remove(self) -> None:
        self.session.close()
        self.session.peers.remove(self.session)
        if self.hooks is not None:
            self.hooks.remove()


_REQUESTS: ContextVar[tuple[Attachment, ...]] = ContextVar("galaxydit_requests", default=())


class Attachments:
    """The attachments of one acceleration: `base` is that of `accelerate` or the last `set`."""

    def __init__(self, base: Attachment) -> None:
        self.base = base
        self._others: list[Attachment] = []  # of open `using` blocks, and former bases
        self._lock = threading.RLock()

    def wanted(self) -> Attachment:
        """The attachment for a generation that begins in this context."""
        return next((one for one in reversed(_REQUESTS.get()) if one in self._others), self.base)

    def current(self, continues: Callable[[Attachment], bool] = lambda _: True) -> Attachment:
        """The attachment for the next call of this thread: a generation keeps the settings that it began with.
        `continues` says whether the call may belong to a generation of an attachment."""
        wanted, thread = self.wanted(), threading.get_ident()
        here = (one for one in self._others if one.is_former or one in _REQUESTS.get())  # not of other asyncio tasks
        others = [one for one in (self.base, *here) if one is not wanted and one.session.is_under_way(thread)]
        if not others or (wanted.session.is_under_way(thread) and continues(wanted)):
            return wanted
        return next(filter(continues, others), wanted)

    def serving(self, component: str, continues: Callable[[Engine], bool] = lambda _: True) -> Engine:
        """The engine of `current`, with its hooks in place; when a generation begins, former settings are removed."""
        with self._lock:
            current = self.current(lambda one: continues(one.engines[component]))
            for other in list(self._others):
                if other.is_former and other is not current and not other.session.is_under_way():
                    self._close(other)
            current.place()
        self.base.session.listener.tell()
        return current.engines[component]

    def replace(self, base: Attachment) -> None:
        """Take another base; the former one stays for its generation that is under way."""
        with self._lock:
            former, self.base = self.base, base
            base.session.text_seconds = former.session.text_seconds
            base.session.text_joules = former.session.text_joules
            if former.session.is_under_way():
                former.session.note("settings that were set within this generation hold from the next generation on")
                former.is_former = True
                self._others.append(former)
            else:
                former.remove()
                base.session.adopt(former.reports)
        base.session.listener.tell()

    @contextmanager
    def opened(self, begin: Callable[[], Attachment]) -> Iterator[Attachment]:
        """Context within which generations begin with a request's settings; its reports then join those of `base`.

        It calls `begin` when it is entered, because the session of a context that is never entered would stay.
        """
        request = begin()
        self._others.append(request)
        token = _REQUESTS.set((*_REQUESTS.get(), request))
        try:
            yield request
        finally:
            with suppress(ValueError):  # a generator may be closed in another context
                _REQUESTS.reset(token)
            with self._lock:
                if request in self._others:
                    self._close(request)
            self.base.session.listener.tell()

    def _close(self, attachment: Attachment) -> None:
        try:
            attachment.remove()
        finally:
            self._others.remove(attachment)
            self.base.session.adopt(attachment.reports)

    @property
    def reports(self) -> list[Report]:
        former = [one for one in self._others if one.is_former]
        return [report for one in (self.base, *former) for report in one.reports]

    def remove(self) -> None:
        with self._lock:
            for other in list(self._others):
                self._close(other)
            self.base.remove()
        self.base.session.listener.tell()
