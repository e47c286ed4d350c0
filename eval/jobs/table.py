"""Checks of a TOML table: known keys, right values, and errors that name file, key, value and what is allowed."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from galaxydit.errors import GalaxyDiTError

LONGEST = 80


@dataclass(frozen=True)
class Key:
    """What a key may hold, as a check and in words."""

    accepts: Callable[[Any], bool]
    allowed: str


def text() -> Key:
    """Text that is not empty."""
    return Key(lambda value: isinstance(value, str) and bool(value.strip()), "text that is not empty")


def choice(*names: str) -> Key:
    """One of these texts."""
    return Key(lambda value: value in names, f"one of {', '.join(names)}")


def whole(minimum: int) -> Key:
    """A whole number."""
    return Key(lambda value: _is_whole(value) and value >= minimum, f"a whole number from {minimum}")


def number(minimum: float, *, above: bool = False) -> Key:
    """A finite number from `minimum` on, or above it."""
    words = f"a number above {minimum:g}" if above else f"a number from {minimum:g}"
    return Key(lambda value: _is_number(value) and (value > minimum if above else value >= minimum), words)


def list_of(item: Key) -> Key:
    """A list with at least one item and none twice."""
    return Key(
        lambda value: (
            isinstance(value, list)
            and bool(value)
            and all(item.accepts(entry) for entry in value)
            and len({json.dumps(entry) for entry in value}) == len(value)
        ),
        f"a list, without repetition, of {item.allowed}",
    )


def like(example: Any) -> Key:
    """A value of the kind of `example`."""
    if isinstance(example, bool):
        return Key(lambda value: isinstance(value, bool), "true or false")
    if _is_whole(example):
        return Key(_is_whole, f"a whole number, such as {example}")
    if _is_number(example):
        return Key(_is_number, f"a number, such as {example:g}")
    if isinstance(example, list | tuple):
        return Key(lambda value: isinstance(value, list), f"a list, such as {shown(example)}")
    return Key(lambda value: isinstance(value, type(example)), f"such as {shown(example)}")


def check_table(place: str, data: Any, keys: Mapping[str, Key], required: Sequence[str] = ()) -> dict[str, Any]:
    """`data`, once every key is known and every value allowed.

    place: what errors begin with, such as "job.toml: " or "job.toml: prompts.".
    """
    if not isinstance(data, dict):
        raise GalaxyDiTError(f"{place.rstrip('.')} = {shown(data)}, allowed is a table")
    for name, value in data.items():
        if name not in keys:
            raise GalaxyDiTError(f"{place}{name} is not known{suggestion(name, keys)}; allowed are {', '.join(keys)}")
        if not keys[name].accepts(value):
            raise GalaxyDiTError(f"{place}{name} = {shown(value)}, allowed is {keys[name].allowed}")
    for name in required:
        if name not in data:
            raise GalaxyDiTError(f"{place}{name} is missing, allowed is {keys[name].allowed}")
    return data


def suggestion(name: str, known: Mapping[str, Any] | Sequence[str]) -> str:
    """The question whether another name was meant, or nothing."""
    close = get_close_matches(name, list(known), n=1)
    return f": did you mean {close[0]}?" if close else ""


def shown(value: Any) -> str:
    """A value as it may stand in the file, cut where it is long."""
    words = json.dumps(value, ensure_ascii=False, default=str)
    return words if len(words) <= LONGEST else words[:LONGEST] + "..."


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
