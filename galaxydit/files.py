"""Atomic file writes, errors that name their file, and the SHA-256 that a file holds of its own content."""

import hashlib
import json
import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from galaxydit.errors import refusal

DIGEST = "digest"  # the key of a file's SHA-256, by which a change on disk is noticed


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


KINDS = {stat.S_ISFIFO: "FIFO", stat.S_ISSOCK: "socket", stat.S_ISCHR: "device", stat.S_ISBLK: "device"}
SHELL_PIPES = ("/dev/fd/", "/proc/self/fd/", "/dev/stdin")


def check_file_kind(field: str, path: str | Path, *, may_be_piped: bool = False) -> None:
    """Raise GalaxyDiTError for a FIFO, a socket or a device, which could be waited for without end.

    `may_be_piped` allows what a shell connects: standard input and process substitution.
    """
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):  # a missing file, or a name that none can have
        return
    if may_be_piped and stat.S_ISFIFO(mode) and str(path).startswith(SHELL_PIPES):
        return
    for is_kind, name in KINDS.items():
        if is_kind(mode):
            raise refusal(field, str(path), f"a file or a folder, not a {name}", "pass another path")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path whose file replaces `path` on success; creates the folder.

    Raises GalaxyDiTError if `path` is a FIFO, a socket or a device, such as /dev/stdout.
    """
    check_file_kind("path", path)
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


def digest_of(data: Mapping[str, Any]) -> str:
    """SHA-256, in hexadecimal, of plain data in any order of keys."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def with_digest(data: Mapping[str, Any]) -> dict[str, Any]:
    """The data as JSON reads it back, with its digest. Raises ValueError for infinities and nan."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False)
    # UTF-8 cannot hold half a surrogate pair, which becomes "?".
    plain: dict[str, Any] = json.loads(text.encode("utf-8", "replace"))
    return plain | {DIGEST: digest_of(plain)}


def split_digest(data: Mapping[str, Any]) -> tuple[dict[str, Any], bool | None]:
    """The data without its digest, and whether the digest belongs to the data; None without a digest."""
    content = {name: value for name, value in data.items() if name != DIGEST}
    if DIGEST not in data:
        return content, None
    return content, data[DIGEST] == digest_of(content)
