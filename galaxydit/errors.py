"""Errors and warnings of the plugin, and the checks that raise them in one form."""

import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from itertools import pairwise
from typing import Any

from galaxydit.foreign_text import logger_of, one_line, without_secrets

logger = logger_of(__name__)


class GalaxyDiTError(ValueError):
    """An error that the user can correct: `field=value is not allowed: expected ...; cure`.

    `problem` is the message without the `cure`; `field`, `value` and `expected` are set by `refusal`.
    """

    def __init__(self, problem: str, cure: str = "", *, field: str = "", value: Any = None, expected: str = "") -> None:
        self.problem, self.cure, self.expected = one_line(problem), one_line(cure), one_line(expected)
        self.field, self.value = field, value
        super().__init__(f"{self.problem}; {self.cure}" if cure else self.problem)


class GalaxyDiTWarning(UserWarning):
    """Base class of the plugin's warnings, whose text is safe to print, whatever names and notes it quotes."""

    def __init__(self, text: object = "") -> None:
        super().__init__(one_line(text))


class FullComputeWarning(GalaxyDiTWarning):
    """Steps are computed in full that could be reused; the report's `notes` have the same text."""


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
    shown = shown if len(shown) <= 160 else f"{shown[:60]}...{shown[-60:]}"
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
    text = f"{type(error).__name__}: {error}" if named else str(error)
    return one_line(" ".join(text.split()))[:most]


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Text to append to an error: "; did you mean ...?" with the nearest known name, or "" if none is near."""
    folded = {each.casefold(): each for each in known}
    near = get_close_matches(str(name).casefold(), folded, n=1)
    return f"; did you mean {folded[near[0]]!r}?" if near else ""


def check_number(field: str, value: Any, minimum: float, maximum: float = math.inf, *, above: bool = False) -> None:
    """Raise GalaxyDiTError unless a finite number lies in [minimum, maximum], with `above` in (minimum, maximum]."""
    fits = _is_number(value) and minimum <= value <= min(maximum, sys.float_info.max)
    if not fits or (above and value == minimum):
        least = f"above {minimum:g}" if above else f"at least {minimum:g}"
        allowed = least if maximum == math.inf else f"from {minimum:g} to {maximum:g}"
        raise refusal(field, value, f"a number {allowed}", f"pass for example {field}={max(minimum, 0.1):g}")


def check_count(field: str, value: Any, minimum: int, maximum: int = sys.maxsize) -> None:
    """Raise GalaxyDiTError unless the value is a whole number from `minimum` to `maximum`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
        raise refusal(field, value, f"a whole number of at least {minimum}", f"pass for example {minimum}")
    if value > maximum:
        raise refusal(field, value, f"a whole number of at most {maximum}", f"pass for example {minimum}")


def check_choice(field: str, value: Any, allowed: Sequence[Any]) -> None:
    """Raise GalaxyDiTError unless the value is one of `allowed`, of the same type."""
    if not any(type(value) is type(choice) and value == choice for choice in allowed):
        names = ", ".join(repr(choice) for choice in allowed)
        near = did_you_mean(value, [choice for choice in allowed if isinstance(choice, str)])
        raise refusal(field, value, f"one of {names}", f"choose one of these{near}")


def check_ascending(field: str, values: Sequence[float], *, strictly: bool) -> None:
    """Raise GalaxyDiTError unless all values are finite, at least 0 and never fall (with `strictly`: always rise)."""
    for value in values:
        if not _is_number(value) or not 0 <= value <= sys.float_info.max:
            raise refusal(field, value, "finite numbers of at least 0", "calibrate again")
    for before, after in pairwise(values):
        if after < before or (strictly and after == before):
            kind = "rising" if strictly else "never falling"
            raise GalaxyDiTError(
                f"{field} goes from {before!r} to {after!r}: expected {kind} numbers", "calibrate again"
            )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
