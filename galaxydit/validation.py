"""Check plain JSON or TOML data against frozen dataclasses with pydantic, and word its errors as a GalaxyDiTError."""

import json
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

from galaxydit.errors import GalaxyDiTError, did_you_mean, refusal

MOST_VALUES = 1000  # in a list of a profile, such as its noise levels: planning takes time that grows with their square
CURE = "calibrate again, or restore the file"


def parse(kind: Any, data: Any, path: str = "profile", cure: str = CURE) -> Any:
    """`data` as a value of type `kind`, usually a dataclass.

    Raises GalaxyDiTError with the first wrong place, whose path begins with `path`, its value, what is expected and
    `cure`.
    """
    from pydantic import ValidationError

    try:
        return _adapter(kind).validate_json(json.dumps([data], default=str))[0]
    except ValidationError as error:
        # A misspelt key also raises "missing", so other errors are reported first.
        details = min(error.errors(), key=lambda detail: detail["type"] == "missing")
        raise _translate(details, kind, path, cure) from error
    except (ValueError, RecursionError) as error:
        raise GalaxyDiTError(f"{path} cannot be read ({error})", cure) from error


def check_lengths(data: Any, path: str, cure: str = CURE) -> None:
    """Raise GalaxyDiTError, with the place, if a list in plain data has more than `MOST_VALUES` entries."""
    if isinstance(data, dict):
        for name, value in data.items():
            check_lengths(value, f"{path}.{name}", cure)
    elif isinstance(data, list):
        if len(data) > MOST_VALUES:
            raise refusal(f"len({path})", len(data), f"at most {MOST_VALUES} entries", cure)
        for index, value in enumerate(data):
            check_lengths(value, f"{path}[{index}]", cure)


@cache
def _adapter(kind: Any) -> Any:
    from pydantic import TypeAdapter

    # pydantic takes no settings for a dataclass itself, but it hands those of a list on to the items.
    return TypeAdapter(list[kind], config={"extra": "forbid", "strict": True, "allow_inf_nan": False})


def _translate(details: Any, kind: Any, path: str, cure: str) -> GalaxyDiTError:
    location = details["loc"][1:]  # the first is the list around `data`
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif path:
            path += f".{part}"
        else:
            path = str(part)
    wrong = details["type"]
    message = details["msg"]
    if wrong == "missing":
        return GalaxyDiTError(f"{path} is missing", cure)
    if wrong == "json_invalid":
        return GalaxyDiTError(f"{path} cannot be read ({message})", cure)
    own = details.get("ctx", {}).get("error")
    if isinstance(own, GalaxyDiTError):
        # The cure of a setting, such as another choice, does not mend a file.
        return GalaxyDiTError(f"{path}: {own.problem}", cure)
    if wrong in ("unexpected_keyword_argument", "extra_forbidden"):
        problem = f"{path} is not known"
        known: list[str] = []
        if is_dataclass(kind) and len(location) == 1:
            known = [key.name for key in fields(kind)]
            problem += f": expected one of {', '.join(known)}"
        return GalaxyDiTError(problem, f"remove it, or {cure}{did_you_mean(part, known)}")
    return refusal(path, details["input"], message.removeprefix("Input should be "), cure)
