"""Whether an argument of a call is the one of the step before."""

import weakref
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


class KnownValue:
    """An argument of a call, compared by object and version, else by values."""

    def __init__(self, value: Any) -> None:
        self._parts = {name: KnownValue(part) for name, part in _parts_of(value).items()}
        self._value: Any = None if self._parts else value
        if isinstance(value, Tensor):
            self._object = weakref.ref(value)
            self._version = _version_of(value)
            self._value = value.detach().clone() if value.is_inference() else value.detach()
            self._kept_version = _version_of(self._value)

    def is_same_object(self, value: Any) -> bool:
        """Whether it is this tensor, unchanged; False where PyTorch does not count changes. Reads no values."""
        if not isinstance(value, Tensor) or not isinstance(self._value, Tensor):
            return False
        return value is self._object() and self._version is not None and _version_of(value) == self._version

    def is_unchanged(self, value: Any) -> bool:
        parts = _parts_of(value)
        known = self._value
        if self._parts or parts:
            if parts.keys() != self._parts.keys():
                return False
            return all(part.is_unchanged(parts[name]) for name, part in self._parts.items())
        if not isinstance(known, Tensor) or not isinstance(value, Tensor):
            if known is value:
                return True
            return type(known) is type(value) and _are_equal(known, value)
        if self.is_same_object(value):
            return True
        if _version_of(known) != self._kept_version:
            return False  # what is kept shares its memory with the value of then, and was overwritten
        if (value.shape, value.dtype, value.device) != (known.shape, known.dtype, known.device):
            return False
        return torch.equal(value, known)


def changed(known: Mapping[str, KnownValue], values: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the values that differ from the known ones, or that only one of both has."""
    differing = list(known.keys() ^ values.keys())
    for name in known.keys() & values.keys():
        if not known[name].is_unchanged(values[name]):
            differing.append(name)
    return tuple(sorted(differing))


def _parts_of(value: Any) -> dict[Any, Any]:
    """The values in a list, tuple or mapping; empty for any other value."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, list | tuple) and not isinstance(value, torch.Size):
        return dict(enumerate(value))
    return {}


def _are_equal(known: Any, value: Any) -> bool:
    try:
        return bool(known == value)
    except Exception:  # arrays, for example, have no single answer
        return False


def _version_of(tensor: Tensor) -> int | None:
    """Number of changes in place of a tensor; None in inference mode, where PyTorch does not count them."""
    return None if tensor.is_inference() else tensor._version
