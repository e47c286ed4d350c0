"""What changed between two values of plain data, in words."""

from collections.abc import Iterator, Mapping
from typing import Any

SHOWN_DIFFERENCES = 12


def differences(old: Any, new: Any, tolerance: float = 0.0) -> list[str]:
    """One line for each place where two values of plain data differ, floats by more than `tolerance`.

    After a dozen the rest is counted.
    """
    before, after = dict(_flatten(old)), dict(_flatten(new))
    lines = []
    for name in before | after:
        was, now = before.get(name, ...), after.get(name, ...)
        is_near = isinstance(was, float) and isinstance(now, float) and abs(was - now) <= tolerance
        if was != now and not is_near:
            lines.append(f"{name}: {_shown(was)} -> {_shown(now)}")
    if len(lines) > SHOWN_DIFFERENCES:
        lines[SHOWN_DIFFERENCES:] = [f"and {len(lines) - SHOWN_DIFFERENCES} more"]
    return lines


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


def _shown(value: Any) -> str:
    return "not there" if value is ... else repr(value)
