"""Folders that the program made for itself, of which no user knows: what is damaged there must not stop it."""

import os
import warnings
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

from galaxydit.errors import DataWarning, GalaxyDiTError
from galaxydit.pipelines.runs.store import Store


def open_own(folder: Path, kind: str, conditions: Mapping[str, Any]) -> Store:
    """The store in a folder of the program; anything else that is there is moved aside, with a warning.

    Raises OSError if the folder cannot be written.
    """
    try:
        return _sound(folder, kind, conditions)
    except (GalaxyDiTError, OSError) as error:
        if not os.path.lexists(folder):
            raise
        aside = move_aside(folder)
        problem = " ".join(str(error).split())
        said = f"galaxydit: {folder} cannot be continued ({problem}), so it was moved to {aside} and all begins anew"
        warnings.warn(said, DataWarning, stacklevel=4)
    return _sound(folder, kind, conditions)


def _sound(folder: Path, kind: str, conditions: Mapping[str, Any]) -> Store:
    """The store in a folder, with records that can be read. Raises GalaxyDiTError or OSError for any other folder."""
    store = Store(folder).create(kind, conditions)
    for _ in store.survey(sorted(store.unit_ids())):
        pass
    return store


def move_aside(path: Path) -> Path:
    """Rename a file or folder to the first free one of `<name>.damaged-1`, `<name>.damaged-2` and so on."""
    names = (path.with_name(f"{path.name}.damaged-{number}") for number in count(1))
    aside = next(name for name in names if not os.path.lexists(name))
    return path.rename(aside)
