"""Ctrl-C and SIGTERM, which some libraries turn into errors of their own, or which wait for a long computation."""

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def heeding_interrupts() -> Iterator[None]:
    """Raise KeyboardInterrupt after SIGINT or SIGTERM, whatever a library made of it; only in the main thread."""
    came: list[int] = []
    signals: tuple[signal.Signals, ...] = ()
    if threading.current_thread() is threading.main_thread():
        signals = (signal.SIGINT, signal.SIGTERM)
    before: dict[int, Any] = {each: handler for each in signals if callable(handler := signal.getsignal(each))}

    def remember(number: int, frame: Any) -> None:
        came.append(number)
        before[number](number, frame)

    for number in before:
        signal.signal(number, remember)
    try:
        yield
    except Exception as error:
        if came:
            raise KeyboardInterrupt from error
        raise
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is remember:
                signal.signal(number, handler)
    if came:
        raise KeyboardInterrupt


@contextmanager
def answering_interrupts(tell: Callable[[], None], after: float = 0.3) -> Iterator[None]:
    """Call `tell` once, in another thread, if the context goes on for `after` seconds after SIGINT or SIGTERM.

    Python raises KeyboardInterrupt in the main thread, so not before the running tensor operation or import returns.
    Does nothing outside the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ended = threading.Event()
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)

    def listen() -> None:
        while numbers := ours.recv(64):
            if {signal.SIGINT, signal.SIGTERM} & set(numbers):
                if not ended.wait(after):
                    tell()
                return

    before = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
    listener = threading.Thread(target=listen, name="galaxydit-interrupts", daemon=True)
    listener.start()
    try:
        yield
    finally:
        ended.set()
        signal.set_wakeup_fd(before)
        theirs.close()  # ends `listen`
        listener.join()
        ours.close()
