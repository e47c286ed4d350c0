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
    """An error in the input that the user can correct: `field=value is not allowed: expected ...; cure`.

    Attributes:
        problem: the message without the cure.
        cure: the action that corrects the input, such as "pass for example steps=50"; empty if the error was made
            without a separate cure, even if `problem` ends with one.
        field, value, expected: the arguments of `refusal` if that function made the error; else "", None and "".
    """

    def __init__(self, problem: str, cure: str = "", *, field: str = "", value: Any = None, expected: str = "") -> None:
        super().__init__(f"{problem}; {cure}" if cure else problem)
        self.problem, self.cure, self.field, self.value, self.expected = problem, cure, field, value, expected

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (type(self), dict(vars(self)))


def _rebuilt(kind: type[GalaxyDiTError], data: dict[str, Any]) -> GalaxyDiTError:
    """An error rebuilt from its attributes, as when it comes pickled from another process."""
    return kind(data.pop("problem"), data.pop("cure"), **data)


class FullComputeWarning(UserWarning):
    """Warns that steps are computed in full that could be reused, for example because a call was not understood.

    During a generation, the `notes` of its report receive the same text.
    """


class NoEffectWarning(UserWarning):
    """Warns that the plugin is attached but can reuse nothing with these settings."""


class ProfileWarning(UserWarning):
    """Warns that a generation differs from the settings or speedups for which its profile was measured or planned.

    The `notes` of the generation's report receive the same text.
    """


class UnknownFamilyWarning(UserWarning):
    """Warns that a transformer is of no known family and was recognised by its blocks alone."""


class DataWarning(UserWarning):
    """Warns that a part of a file is changed or lost, such as an image's aspect ratio or a video's sound."""


def refusal(field: str, value: Any, expected: str, cure: str) -> GalaxyDiTError:
    """The error that says that the argument or option `field` must not have this `value`.

    The message continues with "expected" and the text `expected`, then the text `cure`, which says what to do. Long
    values are shown without their middle, because paths differ at the end.
    """
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
    """A context for a by-product, such as a measurement of a finished video: an exception of the block becomes the
    text `failures[name]` and a logged warning.
    """
    try:
        yield
    except Exception as error:
        failures[name] = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        logger.warning("%s is missing: %s", name, failures[name])


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Text to append to an error: "; did you mean ...?" with the known name nearest to `name`; "" if none is near."""
    folded = {each.casefold(): each for each in known}
    near = get_close_matches(str(name).casefold(), folded, n=1)
    return f"; did you mean {folded[near[0]]!r}?" if near else ""


def check_number(field: str, value: Any, minimum: float, maximum: float = math.inf, *, above: bool = False) -> None:
    """Raise GalaxyDiTError unless the value is a finite number in [minimum, maximum], with `above` above `minimum`."""
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
