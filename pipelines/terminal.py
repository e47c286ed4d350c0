"""Make text of unknown origin, such as a file name or a model's configuration, safe to print to a terminal."""

import unicodedata

HARMLESS = "\n\t"
UNSAFE = ("Cc", "Cs")  # control characters, which steer a terminal, and halves of surrogate pairs, which no file takes


def printable(text: object) -> str:
    """The text with control characters, except line breaks and tabs, as escapes such as `\\x1b`."""
    return "".join(
        character
        if character in HARMLESS or unicodedata.category(character) not in UNSAFE
        else character.encode("unicode_escape", "backslashreplace").decode("ascii")
        for character in str(text)
    )
