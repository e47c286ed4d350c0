"""How far a run is: counted from its records, shown in a terminal or line by line in a log."""

import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import TracebackType

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from galaxydit.eval.jobs.job import Job
from galaxydit.eval.jobs.rank import Rank
from galaxydit.eval.jobs.record import Record, RunFolder, Unit, read_record

RATE_OVER = 40  # records
LOOK_EVERY = 2.0  # seconds between two looks into the folder
BAR_WIDTH = 40


@dataclass(frozen=True)
class WorkerTally:
    """What one process did."""

    worker: str
    rank: int
    done: int
    failed: int
    last: datetime


@dataclass(frozen=True)
class Tally:
    """The state of a run. `per_hour` is of finished units, None while fewer than two can tell."""

    total: int
    done: int
    failed: int
    per_hour: float | None
    workers: tuple[WorkerTally, ...]

    @property
    def remaining(self) -> int:
        """Units without a record."""
        return self.total - self.done - self.failed

    @property
    def left(self) -> timedelta | None:
        """Time to the end at this rate."""
        if self.remaining == 0:
            return timedelta(0)
        return timedelta(hours=self.remaining / self.per_hour) if self.per_hour else None

    def __str__(self) -> str:
        parts = [f"{self.done} done", f"{self.failed} failed", f"{self.remaining} remaining"]
        if self.per_hour is not None:
            parts.append(f"{self.per_hour:.0f} videos/h")
        if self.left:
            parts.append(f"{timedelta(seconds=round(self.left.total_seconds()))} left")
        return ", ".join(parts)


def tally(records: Iterable[Record], total: int, since: datetime | None = None) -> Tally:
    """Count records; the rate is over the last forty that were finished after `since`."""
    found = sorted(records, key=lambda record: record.finished_at)
    times = [datetime.fromisoformat(record.finished_at) for record in found]
    by_worker: dict[str, list[int]] = {}
    for index, record in enumerate(found):
        by_worker.setdefault(record.worker, []).append(index)
    workers = []
    for worker, indices in by_worker.items():
        done = sum(found[index].is_done for index in indices)
        last = indices[-1]
        workers.append(WorkerTally(worker, found[last].rank, done, len(indices) - done, times[last]))
    done = sum(record.is_done for record in found)
    return Tally(
        total,
        done,
        len(found) - done,
        _per_hour([moment for moment in times if since is None or moment >= since][-RATE_OVER:]),
        tuple(sorted(workers, key=lambda worker: (worker.rank, worker.worker))),
    )


def _per_hour(times: Sequence[datetime]) -> float | None:
    seconds = (times[-1] - times[0]).total_seconds() if len(times) > 1 else 0.0
    return 3600 * (len(times) - 1) / seconds if seconds > 0 else None


def render(counted: Tally, doing: str = "") -> Group:
    """For a terminal: a bar, a line, and a row for each process."""
    bar = Table.grid()
    bar.add_row(ProgressBar(total=counted.total, completed=counted.done + counted.failed, width=BAR_WIDTH))
    parts: list[RenderableType] = [bar, Text(str(counted))]
    if counted.workers:
        table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for heading in ("rank", "done", "failed"):
            table.add_column(heading, justify="right")
        table.add_column("process")
        table.add_column("last finished")
        for worker in counted.workers:
            last = worker.last.astimezone().strftime("%Y-%m-%d %H:%M:%S")
            cells = (str(worker.rank), str(worker.done), str(worker.failed), worker.worker, last)
            table.add_row(*(Text(cell) for cell in cells))
        parts.append(table)
    return Group(*parts, *([Text(doing)] if doing else []))


class Progress:
    """Shown while a process works: one live view by the main process in a terminal, else a line for each own unit."""

    def __init__(self, folder: RunFolder, job: Job, rank: Rank, console: Console | None = None) -> None:
        self._folder = folder
        self._total = len(job.units())
        self._rank = rank.index
        self._console = console or Console(soft_wrap=True)
        self._since = datetime.now(UTC)
        self._records: dict[str, Record] = {}
        self._looked = float("-inf")
        self._counted = tally((), self._total)
        self._doing = "looking for work"
        live = self._console.is_terminal and rank.is_main
        self._live = Live(get_renderable=self._view, console=self._console, refresh_per_second=1) if live else None

    def begin(self, unit: Unit) -> None:
        """A unit was taken."""
        self._doing = f"rank {self._rank}: {unit.id}"

    def finish(self, record: Record) -> None:
        """A unit has its record."""
        self._doing = f"rank {self._rank}: looking for work"
        if self._live is not None:
            return
        counted = self._count()
        took = f"in {record.end_to_end_seconds:.1f} s" if record.end_to_end_seconds is not None else ""
        self._line(f"rank {self._rank}: {record.unit} {record.status} {took}".rstrip() + f"; {counted}")

    def wait(self) -> None:
        """Nothing is to be had: the last units are others' work."""
        waiting = f"rank {self._rank}: waiting for units of other processes"
        if self._doing != waiting and self._live is None:
            self._line(f"{waiting}; {self._count()}")
        self._doing = waiting

    def __enter__(self) -> "Progress":
        if self._live is not None:
            self._live.start()
        else:
            self._line(f"rank {self._rank}: begins; {self._count()}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._looked = float("-inf")
            self._doing = ""
            self._live.stop()

    def _line(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False)

    def _view(self) -> RenderableType:
        if time.monotonic() - self._looked > LOOK_EVERY:
            self._counted = self._count()
            self._looked = time.monotonic()
        return render(self._counted, self._doing)

    def _count(self) -> Tally:
        finished = self._folder.finished()
        for unit_id in finished - set(self._records):
            with suppress(FileNotFoundError):  # a failed unit, to be made again
                self._records[unit_id] = read_record(self._folder.record(unit_id))
        found = (record for unit_id, record in self._records.items() if unit_id in finished)
        return tally(found, self._total, self._since)
