"""Atomic file writes, and errors that name their file."""

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def naming_errors(path: str | Path) -> Iterator[None]:
    """Within the context, an OSError that names no file, such as one of a full disk, names this path."""
    try:
        yield
    except OSError as error:
        if error.filename is not None or error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`. It replaces `path` if the block succeeds, else it is removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.stem}.{secrets.token_hex(4)}{path.suffix}")
    try:
        with naming_errors(path):
            yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_json(path: Path, data: Any) -> None:
    """Write plain data as JSON, atomically. Raises ValueError for infinities and nan, which JSON lacks."""
    with replacing(path) as partial:
        partial.write_text(json.dumps(data, indent=1, allow_nan=False) + "\n", encoding="utf-8")
