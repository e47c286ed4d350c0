"""Checks that need no model: they refuse bad input before torch is loaded and before anything is generated."""

import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

from galaxydit.errors import GalaxyDiTError, refusal


def check_output_file(path: Path, suffix: str, option: str = "--out") -> None:
    """Raise GalaxyDiTError unless the file of an option can be written and ends in `suffix`; leaves nothing behind."""
    if path.suffix != suffix:
        example = f"{path.stem.strip('.') or 'x'}{suffix}"
        raise refusal(option, str(path), f"a name ending in {suffix}", f"pass for example {example}")
    try:
        if path.exists():
            path.open("ab").close()
        _create_beside(path, Path.touch)
    except OSError as error:
        raise _unwritable(option, path, error) from error


def check_record(path: Path | None, ray: str | None) -> None:
    """Raise GalaxyDiTError for a file of --record that this process cannot write."""
    if path is not None and ray is not None:
        raise refusal("--record", str(path), "a file that this process writes", "leave out --ray")
    if path is not None:
        check_output_file(path, ".json", "--record")


def check_output_folder(path: Path, option: str = "--out") -> None:
    """Raise GalaxyDiTError, naming `option`, unless files can be written in a folder; leaves nothing behind."""
    try:
        if os.path.lexists(path):
            tempfile.TemporaryFile(dir=path).close()
        else:
            _create_beside(path, Path.mkdir)
    except OSError as error:
        raise _unwritable(option, path, error) from error


def check_lasting(address: str) -> None:
    """Raise GalaxyDiTError for an address whose files are lost when this process ends (fsspec's memory://)."""
    if "memory" in re.findall(r"(\w+)::?", address.split("://")[0] + "::"):
        expected = "a folder, or an address that outlasts this command"
        raise refusal("--out", address, expected, "pass a folder, or for example s3://bucket/run")


def _create_beside(path: Path, create: Callable[[Path], None]) -> None:
    """Create a file or folder of the same name in a temporary folder beside `path`, and leave `path` alone."""
    parent = next(each for each in path.parents if os.path.lexists(each))
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        copy = Path(folder, path.relative_to(parent))
        copy.parent.mkdir(parents=True, exist_ok=True)
        create(copy)


def _unwritable(option: str, path: Path, error: OSError) -> GalaxyDiTError:
    return refusal(option, str(path), f"a place that can be written ({error.strerror})", "choose another")
