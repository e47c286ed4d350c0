"""Which transformer calls of one acceleration run now; its settings and hooks change while none does."""

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

LONGEST_WAIT = 30.0  # seconds; longer only where a call waits for the thread that waits for its end


class RunningCalls:
    """Counts the calls that run, and applies changes when none runs. `lock`, an `RLock`, guards its acceleration, too.

    A thread within a call never waits, because another one may wait for its end. Methods that wait release the lock.
    """

    def __init__(self, lock: Any) -> None:
        self.lock = threading.Condition(lock)
        self._depths: dict[int, int] = {}  # by thread, with nested calls
        self._changes = deque[Callable[[], None]]()
        self._waiting = 0  # threads that wait until no call runs

    def await_turn(self) -> None:
        """Wait while another thread is about to make a change, so that calls which overlap do not keep it away."""
        if threading.get_ident() in self._depths:
            return
        if self._changes:
            self.await_none()
        self.lock.wait_for(lambda: not self._waiting, LONGEST_WAIT)

    def await_none(self) -> None:
        """Wait until no call runs. One may still run afterwards: this thread's, or after `LONGEST_WAIT`."""
        if threading.get_ident() in self._depths:
            return
        self._waiting += 1
        try:
            self.lock.wait_for(lambda: not self._depths, LONGEST_WAIT)
        finally:
            self._waiting -= 1
            self.lock.notify_all()
        self._apply()

    def enter(self) -> None:
        thread = threading.get_ident()
        self._depths[thread] = self._depths.get(thread, 0) + 1

    def leave(self) -> None:
        thread = threading.get_ident()
        self._depths[thread] -= 1
        if not self._depths[thread]:
            del self._depths[thread]
        try:
            self._apply()
        finally:
            self.lock.notify_all()

    def change(self, change: Callable[[], None]) -> None:
        """Make a change now, or when the last call has ended."""
        self._changes.append(change)
        self._apply()

    def _apply(self) -> None:
        while self._changes and not self._depths:
            self._changes.popleft()()
