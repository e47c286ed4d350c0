"""How far a run is: one live view in a terminal, plain lines elsewhere; and what the records of a store tell."""

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from galaxydit.pipelines.runs.record import Record
from galaxydit.pipelines.runs.run import Progress
from galaxydit.pipelines.runs.unit import Unit

RATE_OVER = 40  # units
BAR_WIDTH = 40


@dataclass
class Row:
    """What one worker did, or all workers of one host."""

    done: int = 0
    failed: int = 0
    seconds: float = 0.0
    running: str = ""

    @property
    def seconds_per_unit(self) -> str:
        """Mean over the units that are done."""
        return f"{self.seconds / self.done:.1f}" if self.done else ""


@dataclass
class Tally:
    """The state of a run: number of units, of those done and of those failed; the time that is left, if known."""

    total: int
    done: int = 0
    failed: int = 0
    left: timedelta | None = None
    rows: dict[str, Row] = field(default_factory=dict)

    def add(self, name: str, record: Record) -> None:
        """Count a record in the row of this name."""
        row = self.rows.setdefault(name, Row())
        if record.is_done:
            self.done += 1
            row.done += 1
            row.seconds += record.seconds
        else:
            self.failed += 1
            row.failed += 1

    def estimate_left(self, times: Iterable[float]) -> None:
        """Set the time that is left from when the last units were done (seconds)."""
        last = sorted(times)[-RATE_OVER:]
        if len(last) > 1 and last[-1] > last[0]:
            self.left = timedelta(seconds=round(self.remaining * (last[-1] - last[0]) / (len(last) - 1)))

    @property
    def remaining(self) -> int:
        """Units without a record."""
        return self.total - self.done - self.failed

    def __str__(self) -> str:
        parts = [f"{self.done} done", f"{self.failed} failed", f"{self.remaining} remaining"]
        if self.remaining and self.left is not None:
            parts.append(f"{self.left} left")
        return ", ".join(parts)


def tally(records: Iterable[Record], total: int) -> Tally:
    """What records tell: one row for each host, since processes come and go."""
    counted, times = Tally(total), []
    for record in records:
        counted.add(record.worker.rpartition(":")[0] or record.worker, record)
        if record.is_done:
            times.append(datetime.fromisoformat(record.finished_at).timestamp())
    counted.estimate_left(times)
    return counted


def render(counted: Tally, heading: str = "host") -> Group:
    """A bar, a line, and a row for each worker or host."""
    bar = Table.grid()
    bar.add_row(ProgressBar(total=max(1, counted.total), completed=counted.done + counted.failed, width=BAR_WIDTH))
    parts: list[RenderableType] = [bar, Text(str(counted))]
    if counted.rows:
        table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        table.add_column(heading)
        for title in ("done", "failed", "s/unit"):
            table.add_column(title, justify="right")
        if any(row.running for row in counted.rows.values()):
            table.add_column("running", no_wrap=True)
        for name, row in counted.rows.items():
            cells = (name, str(row.done), str(row.failed), row.seconds_per_unit, row.running)
            table.add_row(*(Text(cell) for cell in cells[: len(table.columns)]))
        parts.append(table)
    return Group(*parts)


@dataclass
class Stage(Progress):
    """Hands the progress of one run on to a function of stage, finished and total units."""

    tell: Callable[[str, int, int], None]
    name: str
    _done: int = 0
    _total: int = 0

    def start(self, total: int, done: int, failed: int) -> None:
        """The run begins, with so many units that have a record already."""
        self._done, self._total = done + failed, total
        self.tell(self.name, self._done, total)

    def finish(self, worker: int, record: Record) -> None:
        """A unit has its record."""
        self._done += 1
        self.tell(self.name, self._done, self._total)


class LiveProgress(Progress):
    """Shows a run: in a terminal one view that is kept up to date, elsewhere a line for each finished unit.

    Where several runs follow each other, each is a stage. A stage without units of its own is told by calling this
    object with its name, and with the finished and all parts.
    """

    def __init__(self, console: Console | None = None) -> None:
        self.stage = ""
        self._console = console or Console(soft_wrap=True)
        self._counted = Tally(0)
        self._times: deque[float] = deque(maxlen=RATE_OVER)
        self._live: Live | None = None

    def start(self, total: int, done: int, failed: int) -> None:
        """The run begins, with so many units that have a record already."""
        self._counted = Tally(total, done, failed)
        self._times.clear()
        if self._console.is_terminal:
            self._live = Live(get_renderable=self._view, console=self._console, refresh_per_second=1)
            self._live.start()
        else:
            self._line(f"start; {self._counted}")

    def begin(self, worker: int, unit: Unit) -> None:
        """A worker begins a unit."""
        self._counted.rows.setdefault(str(worker), Row()).running = unit.name

    def finish(self, worker: int, record: Record) -> None:
        """A unit has its record."""
        self._counted.add(str(worker), record)
        self._counted.rows[str(worker)].running = ""
        if record.is_done:
            self._note_time()
        if self._live is None:
            self._line(f"worker {worker}: {record.unit} {record.status} in {record.seconds:.1f} s; {self._counted}")

    def stop(self) -> None:
        """The run ends."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def __call__(self, stage: str, done: int, total: int) -> None:
        """So many parts of a stage without units are finished."""
        if stage != self.stage:
            self.stop()
            self.stage = stage
            self.start(total, done, 0)
        self._counted.done = done
        self._note_time()
        if done >= total:
            self.stop()

    def __enter__(self) -> "LiveProgress":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def how_far(self) -> str:
        """The stage with its finished and all units: "scoring: 5 of 12 done"."""
        if not self._counted.total:
            return "nothing done yet"
        text = f"{self._counted.done} of {self._counted.total} done"
        return f"{self.stage}: {text}" if self.stage else text

    def _note_time(self) -> None:
        self._times.append(time.monotonic())
        self._counted.estimate_left(self._times)

    def _view(self) -> Group:
        view = render(self._counted, "worker")
        return Group(Text(self.stage), view) if self.stage else view

    def _line(self, text: str) -> None:
        self._console.print(
            f"{self.stage}: {text}" if self.stage else text, markup=False, highlight=False, soft_wrap=True
        )


def progress_of(stage: str, tell: Callable[[str, int, int], None]) -> Progress:
    """The progress of the run that is one stage of a longer work: a `LiveProgress` itself, which shows workers, or what
    tells any other function.
    """
    if isinstance(tell, LiveProgress):
        tell.stage = stage
        return tell
    return Stage(tell, stage)
