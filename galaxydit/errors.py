"""Errors and warnings of the plugin, and the checks that raise them in one form."""

import logging
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from itertools import pairwise
from typing import Any

logger = logging.getLogger(__name__)


class GalaxyDiTError(ValueError):
    """An error that the user can correct: `field=value is not allowed: expected ...; cure`.

    `problem` is the message without the `cure`; `field`, `value` and `expected` are set by `refusal`.
    """

    def __init__(self, problem: str, cure: str = "", *, field: str = "", value: Any = None, expected: str = "") -> None:
        super().__init__(f"{problem}; {cure}" if cure else problem)
        self.problem, self.cure, self.field, self.value, self.expected = problem, cure, field, value, expected


class FullComputeWarning(UserWarning):
    """Steps are computed in full that could be reused; the report's `notes` have the same text."""


class NoEffectWarning(UserWarning):
    """The plugin is attached but can reuse nothing with these settings."""


class ProfileWarning(UserWarning):
    """A generation differs from the conditions of its profile; the report's `notes` have the same text."""


class UnknownFamilyWarning(UserWarning):
    """A transformer is of no known family and was recognised by its blocks alone."""


class DataWarning(UserWarning):
    """A part of a file is changed or lost, such as an image's aspect ratio or a video's sound."""


def refusal(field: str, value: Any, expected: str, cure: str) -> GalaxyDiTError:
    """The error `field=value is not allowed: expected {expected}; {cure}`, long values without their middle."""
    try:
        shown = repr(value)
    except Exception:  # such as an integer of more digits than Python shows
        shown = f"<{type(value).__name__}>"
    shown = " ".join(shown.split())
    shown = shown if len(shown) <= 160 else f"{shown[:60]}...{shown[-60:]}"
    problem = f"{field}={shown} is not allowed: expected {expected}"
    return GalaxyDiTError(problem, cure, field=field, value=value, expected=expected)


@contextmanager
def noted(failures: dict[str, str], name: str) -> Iterator[None]:
    """Context whose exception becomes `failures[name]` and a logged warning, for by-products such as measurements."""
    try:
        yield
    except Exception as error:
        failures[name] = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        logger.warning("%s is missing: %s", name, failures[name])


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


def check_count(field: str, value: Any, minimum: int) -> None:
    """Raise GalaxyDiTError unless the value is a whole number of at least `minimum`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
        raise refusal(field, value, f"a whole number of at least {minimum}", f"pass for example {minimum}")
    if value > sys.maxsize:
        raise refusal(field, value, f"a whole number of at most {sys.maxsize}", f"pass for example {minimum}")


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
