"""Errors and warnings of the plugin, and the checks that raise them in one form."""

import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from functools import wraps
from inspect import signature
from itertools import pairwise
from numbers import Real
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from galaxydit.foreign_text import logger_of, one_line, without_secrets

logger = logger_of(__name__)
Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")
Settings = TypeVar("Settings")


class GalaxyDiTError(ValueError):
    """An error that the user can correct: `field=value is not allowed: expected ...; cure`.

    `problem` is the message without the `cure`; `field`, `value` and `expected` are set by `refusal`.
    """

    def __init__(self, problem: str, cure: str = "", *, field: str = "", value: Any = None, expected: str = "") -> None:
        self.problem = one_line(problem)
        self.cure = one_line(cure)
        self.expected = one_line(expected)
        self.field = field
        self.value = value
        super().__init__(f"{self.problem}; {self.cure}" if cure else self.problem)


class GalaxyDiTWarning(UserWarning):
    """Base class of the plugin's warnings, whose text is safe to print, whatever names and notes it quotes."""

    def __init__(self, text: object = "") -> None:
        super().__init__(one_line(text))


class FullComputeWarning(GalaxyDiTWarning):
    """Steps are computed in full that could be reused; the report's `notes` have the same text."""


class ExtrapolationWarning(GalaxyDiTWarning):
    """Reused steps repeat the last full step and do not follow its slope; the report's `notes` have the same text."""


class NoEffectWarning(GalaxyDiTWarning):
    """The plugin is attached but can reuse nothing with these settings."""


class ProfileWarning(GalaxyDiTWarning):
    """A generation differs from the conditions of its profile; the report's `notes` have the same text."""


class UnknownFamilyWarning(GalaxyDiTWarning):
    """A transformer is of no known family and was recognised by its blocks alone."""


class DataWarning(GalaxyDiTWarning):
    """A part of a file is changed or lost, such as an image's aspect ratio or a video's sound."""


def refusal(field: str, value: Any, expected: str, cure: str) -> GalaxyDiTError:
    """The error `field=value is not allowed: expected {expected}; {cure}`, long values without their middle."""
    try:
        shown = repr(value)
    except Exception:  # such as an integer of more digits than Python shows
        shown = f"<{type(value).__name__}>"
    shown = " ".join(without_secrets(shown).split())  # before it is cut, which could leave half a secret
    if len(shown) > 160:
        shown = f"{shown[:60]}...{shown[-60:]}"
    problem = f"{field}={shown} is not allowed: expected {expected}"
    return GalaxyDiTError(problem, cure, field=field, value=value, expected=expected)


@contextmanager
def noted(failures: dict[str, str], name: str) -> Iterator[None]:
    """Context whose exception becomes `failures[name]` and a logged warning, for by-products such as measurements."""
    try:
        yield
    except Exception as error:
        failures[name] = short_reason(error, 300)
        logger.warning("%s is missing: %s", name, failures[name])


def short_reason(error: BaseException, most: int, *, named: bool = True) -> str:
    """The text of a library's exception on one line, safe to print, at most `most` characters; its class first."""
    text = str(error)
    if named:
        text = f"{type(error).__name__}: {text}"
    return one_line(" ".join(text.split()))[:most]


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Text to append to an error: "; did you mean ...?" with the nearest known name, or "" if none is near."""
    folded = {each.casefold(): each for each in known}
    near = get_close_matches(str(name).casefold(), folded, n=1)
    if not near:
        return ""
    return f"; did you mean {folded[near[0]]!r}?"


def check_keywords(function: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise GalaxyDiTError for a keyword that a function does not know, with the nearest one that it knows."""
    known = [*known]
    for name in given:
        if name not in known:
            expected = f"{function} takes no argument {name!r}: expected some of {', '.join(known)}"
            raise GalaxyDiTError(expected, f"check the spelling{did_you_mean(name, known)}")


def proposing(function: Callable[Parameters, Returned]) -> Callable[Parameters, Returned]:
    """Decorator: a misspelt keyword raises GalaxyDiTError with the nearest one, in place of TypeError."""
    names = [*signature(function).parameters]

    @wraps(function)
    def checked(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Returned:
        check_keywords(f"{function.__name__}()", kwargs, names)
        return function(*args, **kwargs)

    return checked


def proposing_fields(kind: type[Settings]) -> type[Settings]:
    """Decorator for a dataclass: a misspelt field raises GalaxyDiTError with the nearest one, in place of TypeError."""
    plain = kind.__init__
    names = [*signature(kind).parameters]

    @wraps(plain)
    def checked(self: Settings, *args: Any, **fields: Any) -> None:
        check_keywords(f"{kind.__name__}()", fields, names)
        plain(self, *args, **fields)

    kind.__init__ = checked  # type: ignore[assignment]
    return kind


def check_path(field: str, value: Any) -> Path:
    """The value as a path. Raises GalaxyDiTError unless it is a text or a path."""
    if not isinstance(value, str | os.PathLike):
        raise refusal(field, value, "a text or a path", f"pass for example {field}='outputs/video.mp4'")
    return Path(value)


def plain_number(value: Any) -> Any:
    """A number of NumPy as Python's, which JSON can hold; other values as they are, tensors included."""
    if not (isinstance(value, Real) and hasattr(value, "item")):
        return value
    plain = value.item()
    return plain if isinstance(plain, int | float) else float(plain)  # `item` of np.longdouble returns it as it is


def plain_fields(settings: Any) -> None:
    """Put Python's numbers in the place of NumPy's in the fields of a frozen dataclass."""
    for name, value in list(vars(settings).items()):
        plain = plain_number(value)
        if type(value) is tuple:
            plain = tuple(plain_number(item) for item in value)
        object.__setattr__(settings, name, plain)


def listed(field: str, values: Any, kind: type = str) -> tuple[Any, ...]:
    """Values as a tuple, in which a text or a number alone is one value and no list of letters.

    Raises GalaxyDiTError for what is no list, and for a value that is not of the `kind`, `str` or `float`.
    """
    values = plain_number(values)
    if isinstance(values, str) or is_number(values):
        values = (values,)
    is_allowed: Callable[[Any], bool] = is_number
    what = "a number"
    if kind is str:
        is_allowed = is_text
        what = "a text"
    if not isinstance(values, Iterable) or isinstance(values, Mapping | bytes):
        raise refusal(field, values, f"{what}, or a list of them", "pass a list")
    plain = tuple(plain_number(item) for item in values)
    for item in plain:
        if not is_allowed(item):
            raise refusal(field, item, what, f"pass a list in which each is {what}")
    return plain


def check_number(field: str, value: Any, minimum: float, maximum: float = math.inf, *, above: bool = False) -> float:
    """The value as Python's number. Raises GalaxyDiTError unless it is finite and lies in [minimum, maximum], with
    `above` in (minimum, maximum]."""
    value = plain_number(value)
    fits = is_number(value) and minimum <= value <= min(maximum, sys.float_info.max)
    if not fits or (above and value == minimum):
        allowed = f"above {minimum:g}" if above else f"at least {minimum:g}"
        if maximum != math.inf:
            allowed = f"from {minimum:g} to {maximum:g}"
        raise refusal(field, value, f"a number {allowed}", f"pass for example {field}={max(minimum, 0.1):g}")
    return value


def check_count(field: str, value: Any, minimum: int, maximum: int = sys.maxsize) -> int:
    """The value as Python's number. Raises GalaxyDiTError unless it is a whole number from `minimum` to `maximum`."""
    value = plain_number(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
        raise refusal(field, value, f"a whole number of at least {minimum}", f"pass for example {minimum}")
    if value > maximum:
        raise refusal(field, value, f"a whole number of at most {maximum}", f"pass for example {minimum}")
    return value


def check_choice(field: str, value: Any, allowed: Sequence[Any]) -> None:
    """Raise GalaxyDiTError unless the value is one of `allowed`, of the same type."""
    if any(type(value) is type(choice) and value == choice for choice in allowed):  # True == 1, but is no choice there
        return
    names = ", ".join(repr(choice) for choice in allowed)
    near = did_you_mean(value, filter(is_text, allowed))
    raise refusal(field, value, f"one of {names}", f"choose one of these{near}")


def check_ascending(field: str, values: Sequence[float], *, strictly: bool) -> None:
    """Raise GalaxyDiTError unless all values are finite, at least 0 and never fall (with `strictly`: always rise)."""
    for value in values:
        if not is_number(plain_number(value)) or not 0 <= value <= sys.float_info.max:
            raise refusal(field, value, "finite numbers of at least 0", "calibrate again")
    for before, after in pairwise(values):
        if after < before or (strictly and after == before):
            kind = "rising" if strictly else "never falling"
            raise GalaxyDiTError(
                f"{field} goes from {before!r} to {after!r}: expected {kind} numbers", "calibrate again"
            )


def is_number(value: Any) -> bool:
    """Whether a value is one of Python's numbers; True and False are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_text(value: Any) -> bool:
    return isinstance(value, str)
