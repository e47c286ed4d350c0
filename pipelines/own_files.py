"""Whether this program wrote a file, so that commands ask before they replace another one.

JSON shows it by its kind, format and digest, tables by their columns, all other files by a constant mark in their
metadata. `save_video`, `Profile.save` and other functions for Python replace what they are given, as `open` does.
"""

import csv
import json
from collections.abc import Callable, Collection
from pathlib import Path

from galaxydit.errors import GalaxyDiTError, refusal, short_reason
from galaxydit.files import split_digest
from galaxydit.pipelines.written_by import HTML_MARK, MARK, MARKDOWN_MARK, PNG_KEY, JsonKind

HEAD = 4096  # bytes, in which a page has its metadata
FIRST_COLUMNS = 5  # of a table, which are the same in every version
NO_MARK = "it has no mark of galaxydit"
Form = Callable[[Path], str]
"""Function that returns why this program did not write a file as it is, or an empty string."""


def check_replaceable(path: Path, option: str, form: Form, *, force: bool) -> None:
    """Raise GalaxyDiTError if a file is there that this program did not write as it is, unless `force` is given."""
    if force or not path.exists():
        return
    if not path.is_file():
        raise refusal(option, str(path), "a file", f"pass another {option}")
    try:
        reason = form(path)
    except Exception as error:  # whatever libraries raise for files of others
        reason = f"it cannot be read: {short_reason(error, 120)}"
    if reason:
        expected = f"a new file, or one that galaxydit wrote and nobody changed ({reason})"
        raise refusal(option, str(path), expected, f"pass another {option}, or --force to replace the file")


def own_json(kind: JsonKind) -> Form:
    """The form of `galaxydit.pipelines.written_by.write_own_json`."""

    def reason(path: Path) -> str:
        data = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(data, dict) or data.get("kind") != kind.name:
            return f"it is no {kind.name!r}"
        if data.get("format") != kind.format:
            return f"it has format {str(data.get('format'))[:20]}, this version writes {kind.format}"
        _, is_unchanged = split_digest(data)
        return "" if is_unchanged else "its digest does not belong to its content"

    return reason


def own_profile(path: Path) -> str:
    from galaxydit.profiles.schema import parse_profile  # imports torch

    try:
        parse_profile(json.loads(path.read_text(encoding="utf-8")))
    except GalaxyDiTError as error:
        return error.problem
    return ""


def own_video(path: Path) -> str:
    return _own_media(path, "mp4")


def own_sound(path: Path) -> str:
    return _own_media(path, "flac")


def _own_media(path: Path, form: str) -> str:
    import av

    with av.open(f"file:{path}", format=form) as container:
        return "" if container.metadata.get("comment") == MARK else NO_MARK


def own_picture(path: Path) -> str:
    from PIL import Image

    with Image.open(path, formats=["PNG"]) as picture:
        return "" if picture.info.get(PNG_KEY) == MARK else NO_MARK


def own_html(path: Path) -> str:
    with path.open("rb") as file:
        return "" if HTML_MARK.encode() in file.read(HEAD) else NO_MARK


def own_markdown(path: Path) -> str:
    """The mark has to be the last line, so that notes below it are kept."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - HEAD))
        return "" if file.read().rstrip().endswith(MARKDOWN_MARK.encode()) else NO_MARK


def own_csv(columns: Collection[str]) -> Form:
    """The form of a table that begins with the first of these columns and has no others.

    A column of a user, or of a newer version, is kept, and so is a table of others that shares a few names.
    """

    def reason(path: Path) -> str:
        with path.open(encoding="utf-8", newline="") as file:
            names = next(csv.reader([file.readline(2**16)]), [])
        first = [*columns][:FIRST_COLUMNS]
        if names[: len(first)] != first:
            return f"its first columns are not {', '.join(first)}"
        others = [name for name in names if name not in columns]
        return f"it has a column {others[0][:40]!r}" if others else ""

    return reason


def own_parquet(path: Path) -> str:
    from pyarrow import parquet

    metadata = parquet.read_schema(path).metadata or {}
    return "" if metadata.get(b"generator") == MARK.encode() else NO_MARK
