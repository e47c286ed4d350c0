"""Who works on which unit: claims in a shared folder, without a server and without locks.

A claim is a file made with O_CREAT | O_EXCL, which succeeds for one process alone on local and on network file systems
(NFS 3 and later). Its owner touches it at every heartbeat. A claim that was not touched for `expiry` seconds is lost,
and whoever creates the next generation `<unit>.<generation + 1>` has taken the unit over. No claim is renamed, and none
is removed before the unit has its record (giving a unit back sets its claim's time to 1970). So generations have no
gaps, two processes that see the same loss cannot both win, and one that was only asleep finds the next generation when
it wakes.

Ages are differences of two modification times given by the same file system, so that the clocks of the machines do not
matter. A claim is opened before its time is read, which makes NFS ask the server.

A claim keeps workers from doing the same work twice. That a unit is done is said by its record alone.
"""

import os
import threading
import uuid
from contextlib import suppress
from pathlib import Path
from types import TracebackType

HEARTBEATS = 12  # in one expiry: so many may be late together before a unit is taken for lost


class Claims:
    """The claims of one run, seen by one worker. `expiry` in seconds must be the same for all workers."""

    def __init__(self, folder: Path, worker: str, expiry: float) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.expiry = expiry
        self._worker = worker
        self._clock = folder / f".clock-{uuid.uuid4().hex}"

    def take(self, unit_id: str) -> "Claim | None":
        """The claim on a unit, or None while another worker lives that has it. Check for a record after, not before:
        the claims of a finished unit are gone.
        """
        generation, mtime = self._newest(unit_id)
        if mtime is not None and self._now() - mtime < self.expiry:
            return None
        path = self._path(unit_id, generation + 1)
        try:
            handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        except FileExistsError:
            return None
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(self._worker)
        return Claim(path, self._path(unit_id, generation + 2), self.expiry / HEARTBEATS)

    def forget(self, unit_id: str) -> None:
        """Remove the claims of a unit that has its record, the newest first."""
        for generation in range(self._newest(unit_id)[0], -1, -1):
            self._path(unit_id, generation).unlink(missing_ok=True)

    def close(self) -> None:
        """Leave no file of this worker's own behind."""
        self._clock.unlink(missing_ok=True)

    def _newest(self, unit_id: str) -> tuple[int, float | None]:
        """The last generation and when it was touched; -1 and None where there is no claim."""
        generation, mtime = -1, None
        while (found := _mtime(self._path(unit_id, generation + 1))) is not None:
            generation, mtime = generation + 1, found
        return generation, mtime

    def _path(self, unit_id: str, generation: int) -> Path:
        return self.folder / f"{unit_id}.{generation}"

    def _now(self) -> float:
        """The file system's own time, seconds."""
        while True:
            self._clock.touch()
            mtime = _mtime(self._clock)
            if mtime is not None:  # else another worker has just tidied up
                return mtime


class Claim:
    """A unit taken. Inside the context its heartbeat goes on; leaving it gives the unit back."""

    def __init__(self, path: Path, successor: Path, interval: float) -> None:
        self.path = path
        self._successor = successor
        self._interval = interval
        self._stopped = threading.Event()
        self._lost = False
        self._thread = threading.Thread(target=self._beat, name=f"heartbeat {path.name}", daemon=True)

    @property
    def generation(self) -> int:
        """0 for the first claim on a unit; each take-over adds 1."""
        return int(self.path.name.rpartition(".")[2])

    @property
    def is_lost(self) -> bool:
        """Whether this process was taken for dead and another one has the unit, or has finished it."""
        self._lost = self._lost or _mtime(self._successor) is not None or _mtime(self.path) is None
        return self._lost

    def __enter__(self) -> "Claim":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._thread.join()
        with suppress(OSError):  # it is gone if the unit is finished; if the file system is, it expires by itself
            os.utime(self.path, (0, 0))

    def _beat(self) -> None:
        while not self._stopped.wait(self._interval):
            try:
                if self.is_lost:
                    return
                os.utime(self.path)
            except OSError:  # a hiccup of the network: the next beat is soon
                continue


def _mtime(path: Path) -> float | None:
    """Fresh from the server, None if there is no such file."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        return os.fstat(handle).st_mtime
    finally:
        os.close(handle)
