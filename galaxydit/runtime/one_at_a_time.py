"""Methods of an object that several threads share."""

from collections.abc import Callable
from functools import wraps
from typing import Any


def one_at_a_time(method: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: holds the object's `lock` during the method."""

    @wraps(method)
    def locked(self: Any, *arguments: Any) -> Any:
        with self.lock:
            return method(self, *arguments)

    return locked
