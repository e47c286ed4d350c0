"""What whoever waits for a video sees: a live view in a terminal, or a line at least every `QUIET` seconds."""

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from threading import Event, Thread

from rich.console import Console

QUIET = 20.0  # longest silence of a command, in seconds


def draws_live(console: Console) -> bool:
    """Whether lines may be drawn again in place. FORCE_COLOR alone allows colours in a file, but no moving cursor."""
    if console.is_terminal and os.environ.get("FORCE_COLOR"):
        return console.file.isatty()
    return console.is_terminal


class Heartbeat(AbstractContextManager["Heartbeat"]):
    """Calls `tell` with the seconds since the last call of `said`, in a thread, each time these grow by `quiet`.

    `said` is called whenever something was printed. Without a further call, `tell` is called again and again.
    """

    def __init__(self, tell: Callable[[float], None], quiet: float = QUIET) -> None:
        self._tell, self._quiet = tell, quiet
        self._last, self._stopped = time.monotonic(), Event()
        self._thread: Thread | None = None

    def __enter__(self) -> "Heartbeat":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Begin to count; nothing if it counts already."""
        if self._thread is None:
            self.said()
            self._stopped.clear()
            self._thread = Thread(target=self._beat, name="galaxydit-heartbeat", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End the thread; nothing if none runs."""
        if self._thread is not None:
            self._stopped.set()
            self._thread.join()
            self._thread = None

    def said(self) -> None:
        self._last = time.monotonic()

    def _beat(self) -> None:
        told = 0  # how often since the last `said`
        seen = self._last
        while True:
            if seen != self._last:
                seen, told = self._last, 0
            if self._stopped.wait(max(0.01, seen + (told + 1) * self._quiet - time.monotonic())):
                return
            if seen == self._last and time.monotonic() - seen >= (told + 1) * self._quiet:
                told += 1
                self._tell(time.monotonic() - seen)
