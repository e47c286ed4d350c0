"""Atomic file writes, and errors that name their file."""

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any


@contextmanager
def naming_errors(path: str | Path, partial: Path | None = None) -> Iterator[None]:
    """Put `path` into an OSError that names no file, as for a full disk, or names the temporary file `partial`."""
    try:
        yield
    except OSError as error:
        temporary = (str(partial), f"file:{partial}")  # the latter is the address that FFmpeg is given
        if error.errno is None or (error.filename is not None and str(error.filename) not in temporary):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path whose file replaces `path` on success; creates the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    stem = path.stem.encode(errors="surrogateescape")[:200].decode(errors="ignore")  # names have up to 255 bytes
    partial = path.with_name(f".{stem}.{secrets.token_hex(4)}{path.suffix}")
    try:
        with naming_errors(path, partial):
            yield partial
            partial.replace(path)
    finally:
        with suppress(OSError):  # a read-only disk refuses this, too, in place of the error that names `path`
            partial.unlink(missing_ok=True)


def create_file(path: Path, content: bytes) -> bool:
    """Write a file whole unless it exists; whether it was written. Of several processes, one alone can."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.stem}.{secrets.token_hex(4)}{path.suffix}")
    try:
        with naming_errors(path, partial):
            partial.write_bytes(content)
            try:
                os.link(partial, path)
            except FileExistsError:
                return False
            except OSError:  # a disk without hard links, such as exFAT: for a moment others see an empty file
                with path.open("xb") as created:
                    created.write(content)
            return True
    except FileExistsError:
        return False
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def write_json(path: Path, data: Any) -> None:
    """Write JSON atomically. Raises ValueError for infinities and nan."""
    with replacing(path) as partial:
        partial.write_text(json.dumps(data, indent=1, allow_nan=False) + "\n", encoding="utf-8")
