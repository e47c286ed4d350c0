"""Progress of a run: one live view in a terminal, plain lines elsewhere, or numbers from a store's records."""

import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.text import Text

from galaxydit.foreign_text import printable
from galaxydit.pipelines.runs.run import Progress
from galaxydit.pipelines.runs.unit import Record, Unit
from galaxydit.pipelines.table import Table

RATE_OVER = 40  # last done units, over which the rate of a run is taken


@dataclass
class WorkerRow:
    """Done and failed units of one worker or host."""

    done: int = 0
    failed: int = 0
    seconds: float = 0.0  # wall-clock sum of the done units
    running: str = ""  # name of the unit that is being made


@dataclass
class Tally:
    """The state of a run, to be shown."""

    total: int
    done: int = 0
    failed: int = 0
    # of the last done units, in seconds of any one clock, ascending
    times: deque[float] = field(default_factory=lambda: deque(maxlen=RATE_OVER))
    rows: dict[str, WorkerRow] = field(default_factory=dict)  # by worker or host
    all_stages_end: float | None = None  # estimated, on the clock of `time.monotonic`

    def add(self, name: str, record: Record) -> None:
        """Count a record in the run and in the row `name`, but not in `times`."""
        row = self.rows.setdefault(name, WorkerRow())
        row.seconds += record.seconds if record.is_done else 0.0
        for counted in (self, row):
            counted.done += record.is_done
            counted.failed += not record.is_done

    @property
    def remaining(self) -> int:
        return self.total - self.done - self.failed

    @property
    def left(self) -> timedelta | None:
        """Estimated time for the remaining units, at the rate of `times`."""
        if len(self.times) < 2 or self.times[-1] == self.times[0]:
            return None
        return timedelta(seconds=round(self.remaining * (self.times[-1] - self.times[0]) / (len(self.times) - 1)))

    def __str__(self) -> str:
        counts = f"{self.done} done, {self.failed} failed, {self.remaining} remaining"
        if self.all_stages_end is not None:
            left = round(max(0.0, self.all_stages_end - time.monotonic()))
            return f"{counts}, all stages about {timedelta(seconds=left)}" if left else counts
        return f"{counts}, {self.left} left" if self.remaining and self.left is not None else counts


def tally(records: Iterable[Record], total: int) -> Tally:
    """The tally of a store's records with a row for each host; worker processes change too often."""
    counted = Tally(total)
    times = []
    for record in records:
        counted.add(record.worker.rpartition(":")[0] or record.worker, record)
        if record.is_done:
            times.append(datetime.fromisoformat(record.finished_at).timestamp())
    counted.times.extend(sorted(times))
    return counted


def render(counted: Tally, heading: str = "host") -> Group:
    """A bar, a line of text, and a table of `counted.rows` by `heading`."""
    bar = ProgressBar(total=max(1, counted.total), completed=counted.done + counted.failed, width=40)
    parts: list[RenderableType] = [Padding(bar, expand=False), Text(str(counted))]
    rows = []
    for name, row in counted.rows.items():
        rows.append(
            (name, row.running, str(row.done), str(row.failed), f"{row.seconds / row.done:.1f}" if row.done else "")
        )
    if any(row.running for row in counted.rows.values()):
        parts.append(Table((heading, "running", "done", "failed", "s/unit"), rows, labels=2))
    elif rows:
        parts.append(Table((heading, "done", "failed", "s/unit"), [(name, *rest) for name, _, *rest in rows]))
    return Group(*parts)


@dataclass
class Stage(Progress):
    """Progress of a run that is one stage of a longer work: `tell(name, finished units, all units)`."""

    tell: Callable[[str, int, int], None]
    name: str

    def start(self, total: int, done: int, failed: int) -> None:
        self._done = done + failed
        self._total = total
        self.tell(self.name, self._done, total)

    def finish(self, worker: int, record: Record) -> None:
        self._done += 1
        self.tell(self.name, self._done, self._total)


class LiveProgress(Progress, AbstractContextManager["LiveProgress"]):
    """Shows a run: in a terminal one view that is kept up to date, elsewhere a line for each finished unit.

    For stages of a longer work, pass `progress_of(stage, self)` to `run`, or call it with the stage's name, its
    finished and all parts, of which no line is shown.
    """

    def __init__(self, console: Console | None = None) -> None:
        self.stage = ""
        self._console = console or Console(soft_wrap=True)
        self._counted = Tally(0)
        self._live: Live | None = None

    def start(self, total: int, done: int, failed: int) -> None:
        self._counted = Tally(total, done, failed, all_stages_end=self._counted.all_stages_end)
        self._line(f"start; {self._counted}")

    def expect(self, seconds: float) -> None:
        """Count down from an estimate of all stages, in place of the time left of each."""
        self._counted.all_stages_end = time.monotonic() + seconds

    def _open(self) -> None:
        """Begin the view with the first unit, because bars of downloads, which come before it, would tear it."""
        if self._live is None and self._console.is_terminal:
            self._live = Live(get_renderable=self._view, console=self._console, refresh_per_second=1)
            self._live.start()

    def begin(self, worker: int, unit: Unit) -> None:
        self._open()
        self._counted.rows.setdefault(str(worker), WorkerRow()).running = unit.name

    def finish(self, worker: int, record: Record) -> None:
        self._counted.add(str(worker), record)
        self._counted.rows[str(worker)].running = ""
        if record.is_done:
            self._counted.times.append(time.monotonic())
        if self._live is None:
            self._line(f"worker {worker}: {record.unit} {record.status} in {record.seconds:.1f} s; {self._counted}")

    def stop(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Show that `done` of `total` parts of a stage that is no run are finished."""
        if stage != self.stage:
            self.stop()
            self.stage = stage
            self.start(total, done, 0)
        self._open()
        self._counted.done = done
        self._counted.times.append(time.monotonic())
        if done >= total:
            self.stop()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def how_far(self) -> str:
        """Such as "scoring: 5 of 12 done"."""
        if not self._counted.total:
            return "nothing done yet"
        return self._with_stage(f"{self._counted.done} of {self._counted.total} done")

    def _view(self) -> Group:
        view = render(self._counted, "worker")
        if self.stage:
            return Group(Text(self.stage), view)
        return view

    def _line(self, text: str) -> None:
        self._console.print(printable(self._with_stage(text)), markup=False, highlight=False, soft_wrap=True)

    def _with_stage(self, text: str) -> str:
        if self.stage:
            return f"{self.stage}: {text}"
        return text


def expect(tell: Callable[[str, int, int], None], seconds: float) -> None:
    """Give a `LiveProgress` the estimated seconds of all stages; other listeners get none."""
    if isinstance(tell, LiveProgress):
        tell.expect(seconds)


def progress_of(stage: str, tell: Callable[[str, int, int], None]) -> Progress:
    """The progress for a run that is one stage of a longer work."""
    if isinstance(tell, LiveProgress):
        tell.stage = stage
        return tell
    return Stage(tell, stage)
