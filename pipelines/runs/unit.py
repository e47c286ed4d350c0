"""A unit of work as plain data, and what making it gives."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any


@dataclass(frozen=True)
class Unit:
    """One piece of work, such as one generation.

    Attributes:
        name: what people read, at the front of the id; small letters, digits and "._+-".
        data: everything that the result depends on, ready for JSON.
        group: units of one group are made by one worker, in their order, so that they can share what it keeps in
            memory; by default each unit is a group of its own.
    """

    name: str
    data: Mapping[str, Any]
    group: str = ""

    @cached_property
    def id(self) -> str:
        """The name and the first 16 digits of the hash of `data`."""
        return f"{self.name}-{hash_of(self.data)[:16]}"


@dataclass(frozen=True)
class Output:
    """The result of a unit, ready for JSON, and the contents of its files by name, such as "video.mp4"."""

    result: Any
    files: Mapping[str, bytes] = field(default_factory=dict)


class HopelessUnitError(Exception):
    """Raised by a maker for a unit that would fail at any other attempt, too."""


def hash_of(data: Any) -> str:
    """SHA-256 of plain data, as hexadecimal digits. Raises ValueError for infinities and nan."""
    return hashlib.sha256(json.dumps(data, sort_keys=True, allow_nan=False).encode()).hexdigest()
