"""Ctrl-C and SIGTERM, which some libraries turn into errors of their own."""

import signal
import threading
from collections.abc import Iterator
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
