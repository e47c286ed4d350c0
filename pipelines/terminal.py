"""Make text of unknown origin, such as a file name or a model's configuration, safe to print to a terminal."""

import re

# Control characters, which steer a terminal, and halves of surrogate pairs, which no file takes
UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def printable(text: object) -> str:
    """The text with control characters, except line breaks and tabs, as escapes such as `\\x1b`."""
    return UNSAFE.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), str(text))
