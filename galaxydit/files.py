"""Atomic file writes, and errors that name their file."""

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def naming_errors(path: str | Path, partial: Path | None = None) -> Iterator[None]:
    """Context manager that puts `path` into an OSError of its block that names no file, as for a full disk, or names
    the temporary file `partial`.
    """
    try:
        yield
    except OSError as error:
        if error.errno is None or (error.filename is not None and str(error.filename) != str(partial)):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Context manager that yields a temporary path, where the caller writes the new content of `path`.

    On success, the temporary file replaces `path`; after an exception, the temporary file is removed.
    The folder of `path` is created if it does not exist.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    stem = path.stem.encode(errors="surrogateescape")[:200].decode(errors="ignore")  # names have up to 255 bytes
    partial = path.with_name(f".{stem}.{secrets.token_hex(4)}{path.suffix}")
    try:
        with naming_errors(path, partial):
            yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_json(path: Path, data: Any) -> None:
    """Write dicts, lists and scalars as JSON, atomically. Raises ValueError for infinities and nan."""
    with replacing(path) as partial:
        partial.write_text(json.dumps(data, indent=1, allow_nan=False) + "\n", encoding="utf-8")
