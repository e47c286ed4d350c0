"""Finished pieces of a calibration on disk: each written at once or not at all, so that a kill loses one at most."""

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from accelerate import PartialState

Progress = Callable[[str, int, int], None]


class Store:
    """A folder of JSON files, each with one line and the key of the settings it was made under.

    A file of another key, or a damaged one, counts as absent and is written anew.
    """

    def __init__(self, folder: Path, settings: Any) -> None:
        self.folder = folder
        self.key = hash_of(settings)
        folder.mkdir(parents=True, exist_ok=True)

    def get(self, name: str) -> Any | None:
        """The piece of this name, or None."""
        try:
            line = json.loads((self.folder / f"{name}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        complete = isinstance(line, dict) and line.get("key") == self.key and "data" in line
        return line["data"] if complete else None

    def put(self, name: str, data: Any) -> None:
        """Write a piece; it appears under its name only when it is complete."""
        partial = self.folder / f".{name}.{os.getpid()}"
        partial.write_text(json.dumps({"key": self.key, "data": data}, allow_nan=False) + "\n", encoding="utf-8")
        partial.replace(self.folder / f"{name}.json")


def work_through(
    store: Store,
    jobs: Sequence[str],
    run: Callable[[int], Any],
    state: PartialState,
    progress: Callable[[int, int], None],
) -> list[Any]:
    """The results of all jobs in order: those on disk are taken, the rest is run, each on one of the processes.

    Job number i belongs to process i modulo their number. All processes return the same list; they need one folder.
    """
    own = [index for index in range(len(jobs)) if index % state.num_processes == state.process_index]
    done = 0
    progress(done, len(own))
    for index in own:
        if store.get(jobs[index]) is None:
            store.put(jobs[index], run(index))
        done += 1
        progress(done, len(own))
    state.wait_for_everyone()
    results = [store.get(job) for job in jobs]
    missing = [job for job, result in zip(jobs, results, strict=True) if result is None]
    if missing:
        raise OSError(f"{', '.join(missing)} of {store.folder} cannot be read: give all processes one shared folder")
    return results


def hash_of(settings: Any) -> str:
    """SHA-256 of plain data."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
