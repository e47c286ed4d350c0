"""Make text of unknown origin, such as a file name, a prompt or a profile's note, safe to print and to draw."""

import logging
import re

# Control characters, which steer a terminal; characters that reorder or hide text (Unicode's bidirectional controls,
# zero-width space, line separators, tags); and halves of surrogate pairs, which no file takes
UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff\U000e0000-\U000e007f]"
)
HIDDEN = "***"
# "s3://KEY:SECRET@bucket", "https://token@host" and, because Path takes a slash away, "s3:/KEY:SECRET@bucket". Tokens
# that are JWTs, such as those of package registries, have up to some 2,000 characters.
USER = re.compile(r'(?i)([a-z0-9+.-]{1,20}:/{1,2})(?:[^\s:/@"]{1,2500}+@|[^\s:/@"]{0,2500}+:(?:[^\s"@]{0,2500}+@)+)')
# the same without its scheme, as storage libraries name it: "KEY:SECRET@bucket"
USER_ALONE = re.compile(r"""(?<![\w/*:])[^\s:/@"'=(\[{,]{1,200}:[^\s@"'/:][^\s@"']{0,500}@(?=[\w.-])""")
# "?X-Amz-Signature=...", "&sig=...", ";AccountKey=...", "?login[token]=..."
SECRET_NAMES = (
    r"token|key|secret|(?<![a-z])sig|signature|passw(?:or)?d|passphrase|passcode|pwd|credentials?|bearer|auth(?!or)"
    r"|authori[sz]|(?<![a-z])(?:pass|jwt|sas)(?![a-z])"
)
PARAMETER = re.compile(rf"""(?i)([?&;#][\w.%\[-]{{0,60}}?(?:{SECRET_NAMES})[\w.%\]-]{{0,40}}=)[^&#\s"'<>]+""")
TAG = re.compile(r"<(?=[a-zA-Z/!?])")
BAR = re.compile(r"(?<!\\)\|")  # that no backslash escapes


def without_secrets(text: object) -> str:
    """The text with stars for keys, passwords and tokens in addresses."""
    shown = str(text)
    if "@" in shown:
        shown = USER.sub(rf"\g<1>{HIDDEN}@", shown)
        shown = USER_ALONE.sub(f"{HIDDEN}@", shown)
    if "=" in shown:
        shown = PARAMETER.sub(rf"\g<1>{HIDDEN}", shown)
    return shown


def printable(text: object) -> str:
    """The text `without_secrets` and with escapes such as `\\x1b` for unsafe characters; line breaks and tabs stay."""
    return UNSAFE.sub(_escaped, without_secrets(text))


def one_line(text: object) -> str:
    """The `printable` text with spaces for line breaks and tabs, so that it cannot pretend to be another line."""
    return printable(text).replace("\n", " ").replace("\t", " ")


def drawable(text: object) -> str:
    """The text on `one_line`, without mathematics for matplotlib, which begin at a dollar sign."""
    return one_line(text).replace("$", r"\$")


def in_markdown(text: object) -> str:
    """The text on `one_line`, where a bar ends no cell of a table, and a tag of HTML is text."""
    escaped = BAR.sub(r"\|", one_line(text))
    return TAG.sub("&lt;", escaped)


def logger_of(name: str) -> logging.Logger:
    """The logger of a module, whose messages and tracebacks are printable."""
    logger = logging.getLogger(name)
    logger.addFilter(_make_printable)
    return logger


def _make_printable(record: logging.LogRecord) -> bool:
    record.msg = printable(record.getMessage())
    record.args = ()
    if record.exc_info and not record.exc_text:
        record.exc_text = printable(logging.Formatter().formatException(record.exc_info))
    return True


def _escaped(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")
