"""What changed between two values of plain data, in words."""

from collections.abc import Iterator, Mapping
from typing import Any

SHOWN_DIFFERENCES = 12


def differences(old: Any, new: Any, tolerance: float = 0.0) -> list[str]:
    """One line for each place where two values of plain data differ, floats by more than `tolerance`.

    After a dozen the rest is counted.
    """
    before, after = dict(_flatten(old)), dict(_flatten(new))
    changed = [
        name
        for name in dict.fromkeys([*before, *after])
        if not _are_equal(before.get(name, ...), after.get(name, ...), tolerance)
    ]
    lines = [f"{name}: {_shown(before, name)} -> {_shown(after, name)}" for name in changed[:SHOWN_DIFFERENCES]]
    if len(changed) > SHOWN_DIFFERENCES:
        lines.append(f"and {len(changed) - SHOWN_DIFFERENCES} more")
    return lines


def _are_equal(old: Any, new: Any, tolerance: float) -> bool:
    if isinstance(old, float) and isinstance(new, float):
        return abs(old - new) <= tolerance
    return bool(old == new)


def _flatten(data: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(data, Mapping):
        for key, value in data.items():
            yield from _flatten(value, f"{path}.{key}" if path else str(key))
    elif isinstance(data, list | tuple):
        for index, value in enumerate(data):
            name = value.get("name", index) if isinstance(value, Mapping) else index
            yield from _flatten(value, f"{path}[{name}]")
    else:
        yield path, data


def _shown(data: Mapping[str, Any], name: str) -> str:
    return repr(data[name]) if name in data else "not there"
