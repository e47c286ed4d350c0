"""`run` makes the units whose records a store lacks, in this process or on Ray, and writes their records."""

import errno
import os
import socket
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import Any, Protocol

from galaxydit.errors import GalaxyDiTError
from galaxydit.foreign_text import printable
from galaxydit.pipelines.interrupts import heeding_interrupts
from galaxydit.pipelines.runs.store import Store
from galaxydit.pipelines.runs.unit import Output, Record, Unit, encode

ATTEMPTS = 3


@dataclass(frozen=True)
class Rank:
    """Rank of a process among the `size` processes that compute one video; process 0 writes the records."""

    index: int = 0
    size: int = 1


class Maker:
    """Base class of makers; Ray gives a copy, pickled before `prepare`, to each process, so load models there."""

    def prepare(self, rank: Rank) -> None:
        """Load what all units need, once in each process. An exception stops the run: every worker would meet it."""

    def make(self, unit: Unit) -> Output:
        """Result and files of one unit, in up to three attempts, but one after a GalaxyDiTError."""
        raise NotImplementedError


class Progress:
    """Listener to a run, called in the process that called `run`; this base class shows nothing.

    `start` gets all units, and those done and failed before the run; `stop` is called also after an exception.
    """

    def start(self, total: int, done: int, failed: int) -> None: ...
    def begin(self, worker: int, unit: Unit) -> None: ...
    def finish(self, worker: int, record: Record) -> None: ...
    def stop(self) -> None: ...


Finished = Iterator[tuple[int, Record]]
"""Number of the worker and record of each unit, once it is finished."""


class Executor(Protocol):
    """Makes the units of a run, such as `InProcess` or `OnRay`."""

    def work(self, groups: Sequence[Sequence[Unit]], maker: Maker, store: Store, progress: Progress) -> Finished:
        """Make all units, the units of a group one after the other on one worker."""


class InProcess(Executor):
    """Makes units in this process; another run with the same maker does not `prepare` it again."""

    def __init__(self) -> None:
        self._prepared: Maker | None = None

    def work(self, groups: Sequence[Sequence[Unit]], maker: Maker, store: Store, progress: Progress) -> Finished:
        if maker is not self._prepared:
            maker.prepare(Rank())
            self._prepared = maker
        for unit in chain(*groups):
            progress.begin(0, unit)
            yield 0, make_and_commit(unit, maker, store)


@dataclass(frozen=True)
class Outcome:
    """Numbers of done and failed units of a run, also those finished before it."""

    done: int
    failed: int


def run(
    units: Sequence[Unit],
    maker: Maker,
    store: Store,
    executor: Executor | None = None,
    *,
    progress: Progress | None = None,
    retry_failed: bool = False,
    verify: bool = False,
) -> Outcome:
    """Make all units that have no sound record in the store, with their files.

    `retry_failed` makes failed units again; `verify` also compares the SHA-256 of files. The maker loads nothing if no
    unit is left. Raises OSError without space, ConnectionError if Ray is lost, and what `prepare` raises.
    """
    progress = progress or Progress()
    is_done: dict[str, bool] = {}
    # Units with a sound record are finished; others are made again.
    for unit_id, record, damage in store.survey([unit.id for unit in units], wholly=verify):
        if record is None or damage or (retry_failed and not record.is_done):
            store.discard(unit_id, record)
        else:
            is_done[unit_id] = record.is_done
    left = [unit for unit in units if unit.id not in is_done]
    groups: dict[str, list[Unit]] = {}
    for unit in left:
        groups.setdefault(unit.group or unit.id, []).append(unit)
    progress.start(len(units), sum(is_done.values()), list(is_done.values()).count(False))
    try:
        if left:
            for worker, made in (executor or InProcess()).work(list(groups.values()), maker, store, progress):
                is_done[made.unit] = made.is_done
                progress.finish(worker, made)
            store.tidy(left)
    except OSError as error:
        done = f"then give the same command again; {sum(is_done.values())} of {len(units)} units are done and stay done"
        if isinstance(error, ConnectionError):  # the cluster is lost
            raise ConnectionError(f"{error}; {done}") from error
        if (full := full_disk_error(error)) is None:
            raise
        place = full.filename or store.root
        what = f"no space is left for {place}: free some"
        if full.errno == errno.EFBIG:
            what = f"{place} exceeds the size that a file may have (ulimit -f): raise the limit"
        raise OSError(full.errno, f"{what}, {done}") from error
    finally:
        progress.stop()
    return Outcome(sum(is_done.values()), list(is_done.values()).count(False))


def results(units: Sequence[Unit], store: Store) -> list[Any]:
    """The results of units in a store. Raises GalaxyDiTError for the first that failed or has no record."""
    made = []
    for unit in units:
        record = store.read(unit.id)
        if record is None or not record.is_done:
            reason = "it has no record" if record is None else record.reason
            raise GalaxyDiTError(f"{unit.id} of {store.root} failed: {reason}; mend this, and start again")
        made.append(record.result)
    return made


def make_and_commit(unit: Unit, maker: Maker, store: Store) -> Record:
    """The unit's record in the store, made first if it is missing or damaged."""
    known = store.read_sound(unit.id)
    if known is None:
        return store.commit(*attempt(unit, maker))
    return known


def attempt(unit: Unit, maker: Maker) -> tuple[Record, Mapping[str, bytes]]:
    """Record and files by name of a unit, after up to three attempts; a full disk raises OSError."""
    for attempts in range(1, ATTEMPTS + 1):
        start = time.perf_counter()
        try:
            with heeding_interrupts():
                made = maker.make(unit)
            _check_storable(unit, made)
        except Exception as error:
            if (full := full_disk_error(error)) is not None:
                raise OSError(full.errno, full.strerror, full.filename) from error
            seconds = time.perf_counter() - start
            trace = traceback.format_exc()
            message = str(error) if isinstance(error, GalaxyDiTError) else None
            record = new_record(unit, None, trace, message, attempts=attempts, seconds=seconds)
            if message is not None:  # an error that the user can mend comes again
                break
        else:
            return new_record(unit, made.result, attempts=attempts, seconds=time.perf_counter() - start), made.files
    return record, {}


def _check_storable(unit: Unit, made: Output) -> None:
    """Raise GalaxyDiTError for a result that no record can hold, so that the unit fails and not the whole run."""
    try:
        encode(new_record(unit, made.result))
    except (TypeError, ValueError) as error:
        raise GalaxyDiTError(
            f"the result of {unit.name} cannot be stored ({error}): expected plain data with finite numbers; if the "
            "model overflows, take a wider dtype, such as float32"
        ) from error


def new_record(
    unit: Unit,
    result: Any,
    traceback: str | None = None,
    message: str | None = None,
    *,
    attempts: int = 1,
    seconds: float = 0.0,
) -> Record:
    """The record, without files, of a unit that this process finished just now; failed if there is a traceback."""
    return Record(
        unit=unit.id,
        data=unit.data,
        status="done" if traceback is None else "failed",
        attempts=attempts,
        seconds=seconds,
        worker=f"{socket.gethostname()}:{os.getpid()}",
        finished_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        traceback=None if traceback is None else printable(traceback),
        message=None if message is None else printable(message),
        result=result,
    )


def full_disk_error(error: BaseException | None) -> OSError | None:
    """The first of `error` and its causes that reports a full disk or quota, or a file above `ulimit -f`."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            return error
        error = error.__cause__ or error.__context__
    return None
