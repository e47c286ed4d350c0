"""Files that are whole or not there: written elsewhere on the same file system, flushed to the disk, then renamed."""

import errno
import os
from pathlib import Path


def write_durably(text: str, scratch: Path, target: Path) -> None:
    """Put `text` into `target` at once; `scratch` is where it is written first."""
    scratch.write_text(text, encoding="utf-8")
    move_durably(scratch, target)


def move_durably(scratch: Path, target: Path) -> None:
    """Rename a finished file; after a power cut `target` is the old file, or none, or the whole new one."""
    _flush(scratch)
    target.parent.mkdir(parents=True, exist_ok=True)
    os.replace(scratch, target)
    _flush_folder(target.parent)


def create_durably(text: str, scratch: Path, target: Path) -> bool:
    """Like `write_durably`, but only where `target` is not there yet; returns whether it was not."""
    scratch.write_text(text, encoding="utf-8")
    _flush(scratch)
    try:
        os.link(scratch, target)
    except FileExistsError:
        return False
    finally:
        scratch.unlink()
    _flush_folder(target.parent)
    return True


def _flush_folder(path: Path) -> None:
    try:
        _flush(path)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network file systems flush no folders
            raise


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
