"""Plain JSON data into frozen dataclasses: every key known, every value of its type, every number finite."""

import math
import types
import typing
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from galaxydit.errors import GalaxyDiTError

CURE = "calibrate again, or restore the file"
LONGEST = 80


def decode(kind: Any, data: Any, path: str = "profile", cure: str = CURE) -> Any:
    """`data` as a value of type `kind`: a dataclass, float, int, str, bool, Any, `X | None`, `tuple[X, ...]` or
    `Mapping[str, X]`.

    Raises GalaxyDiTError naming the place, the value, what is allowed and the cure.
    """
    if kind is Any:
        return data
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        if data is None and type(None) in arguments:
            return None
        inner = [argument for argument in arguments if argument is not type(None)]
        if len(inner) == 1:
            return decode(inner[0], data, path, cure)
        lists = [argument for argument in inner if typing.get_origin(argument) is tuple]
        if isinstance(data, list) and lists:
            return decode(lists[0], data, path, cure)
        if type(data) in inner and not (isinstance(data, float) and not math.isfinite(data)):
            return data
        names = " or ".join(getattr(argument, "__name__", str(argument)) for argument in arguments)
        raise _refuse(path, data, names, cure)
    if origin is tuple:
        if not isinstance(data, list):
            raise _refuse(path, data, "a list", cure)
        return tuple(decode(arguments[0], item, f"{path}[{index}]", cure) for index, item in enumerate(data))
    if origin is not None:
        if not isinstance(data, dict):
            raise _refuse(path, data, "an object", cure)
        return {key: decode(arguments[1], item, f"{path}.{key}", cure) for key, item in data.items()}
    if is_dataclass(kind):
        return _decode_fields(kind, data, path, cure)
    if kind is float and isinstance(data, int | float) and not isinstance(data, bool):
        try:
            number = float(data)
        except OverflowError:
            number = math.inf
        if math.isfinite(number):
            return number
        raise _refuse(path, data, "a finite number", cure)
    if type(data) is kind:
        return data
    described = {float: "a finite number", int: "a whole number", str: "text", bool: "true or false"}
    raise _refuse(path, data, described.get(kind, str(kind)), cure)


def _decode_fields(kind: Any, data: Any, path: str, cure: str) -> Any:
    if not isinstance(data, dict):
        raise _refuse(path, data, "an object", cure)
    known = {field.name: field for field in fields(kind)}
    hints = typing.get_type_hints(kind)
    for name in data:
        if name not in known:
            raise GalaxyDiTError(f"{path}.{name} is not known, allowed are {', '.join(known)}; {cure}")
    values = {}
    for name, field in known.items():
        if name in data:
            values[name] = decode(hints[name], data[name], f"{path}.{name}", cure)
        elif field.default is MISSING and field.default_factory is MISSING:
            raise GalaxyDiTError(f"{path}.{name} is missing; {cure}")
    try:
        return kind(**values)
    except GalaxyDiTError as error:
        raise GalaxyDiTError(f"{path}: {error}") from error


def _refuse(path: str, value: Any, allowed: str, cure: str) -> GalaxyDiTError:
    shown = repr(value)
    shown = shown if len(shown) <= LONGEST else shown[:LONGEST] + "..."
    return GalaxyDiTError(f"{path}={shown}, allowed is {allowed}; {cure}")
