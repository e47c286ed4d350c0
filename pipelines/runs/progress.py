"""Progress of a run: one live view in a terminal, plain lines elsewhere."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.text import Text

from galaxydit.foreign_text import printable
from galaxydit.pipelines.heartbeat import Heartbeat, draws_live
from galaxydit.pipelines.runs.run import Progress
from galaxydit.pipelines.runs.tally import Tally, WorkerRow
from galaxydit.pipelines.runs.unit import Record, Unit
from galaxydit.pipelines.table import Table


def render(counted: Tally, heading: str = "host") -> Group:
    """A bar, a line of text, and a table of `counted.rows` by `heading`."""
    bar = ProgressBar(total=max(1, counted.total), completed=counted.done + counted.failed, width=40)
    parts: list[RenderableType] = [Padding(bar, expand=False), Text(str(counted))]
    rows = []
    for name, row in counted.rows.items():
        seconds = f"{row.seconds / row.done:.1f}" if row.done else ""
        rows.append((name, _running(row), str(row.done), str(row.failed), seconds))
    if any(row.running for row in counted.rows.values()):
        parts.append(Table((heading, "running", "done", "failed", "s/unit"), rows, labels=2))
    elif rows:
        parts.append(Table((heading, "done", "failed", "s/unit"), [(name, *rest) for name, _, *rest in rows]))
    return Group(*parts)


def _running(row: WorkerRow) -> str:
    if not row.running or row.started is None:
        return row.running
    return f"{row.running}, {timedelta(seconds=round(time.monotonic() - row.started))}"


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

    Outside a terminal a line is printed at least every `QUIET` seconds. For stages of a longer work, pass
    `progress_of(stage, self)` to `run`, or call it with the stage's name, its finished and all parts, of which no line
    is shown.
    """

    def __init__(self, console: Console | None = None) -> None:
        self.stage = ""
        self._console = console or Console(stderr=True, soft_wrap=True)
        self._counted = Tally(0)
        self._live: Live | None = None
        self._is_even = False  # units of all stages take about equally long
        self._heartbeat = Heartbeat(self._go_on)

    def start(self, total: int, done: int, failed: int) -> None:
        before = self._counted
        self._counted = Tally(total, done, failed, later=before.later, all_stages_end=before.all_stages_end)
        if self._is_even:
            self._counted.spans = before.spans
        if self._counted.remaining:
            self._line(f"start; {self._counted}")
            self._heartbeat.start()

    def expect(self, seconds: float | None) -> None:
        """Count down from an estimate of this and all later stages, in place of the time left of each; None ends it."""
        self._counted.all_stages_end = None if seconds is None else time.monotonic() + seconds

    def more_to_come(self, units: int) -> None:
        """Count at most so many units of later stages, which take as long as these, in the time left."""
        if not self._is_even:
            self._is_even = True
            self._counted.spans.clear()
        self._counted.later = max(0, units)

    def _open(self) -> None:
        """Begin the view with the first unit, because bars of downloads, which come before it, would tear it."""
        if self._live is None and draws_live(self._console):
            self._heartbeat.stop()
            self._live = Live(get_renderable=self._view, console=self._console, refresh_per_second=1)
            self._live.start()

    def begin(self, worker: int, unit: Unit) -> None:
        self._open()
        row = self._counted.rows.setdefault(str(worker), WorkerRow())
        row.running, row.started = unit.name, time.monotonic()

    def finish(self, worker: int, record: Record) -> None:
        now = time.monotonic()
        self._counted.add(str(worker), record)
        row = self._counted.rows[str(worker)]
        if record.is_done:
            self._counted.spans.append((row.started or now - record.seconds, now))
        self._counted.last_end, row.running, row.started = now, "", now
        if self._live is None:
            made = f"worker {worker}: {record.unit}" if len(self._counted.rows) > 1 else record.unit
            self._line(f"{made} {record.status} in {record.seconds:.1f} s; {self._counted}")

    def stop(self) -> None:
        self._heartbeat.stop()
        if self._live is not None:
            self._live.stop()
            self._live = None

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Show that `done` of `total` parts of a stage that is no run are finished."""
        now = time.monotonic()
        if stage != self.stage or not self._counted.total:
            self.stop()
            self.stage = stage
            self.start(total, done, 0)
        elif done > self._counted.done:
            self._counted.spans.append((self._counted.last_end or now, now))
        self._counted.done, self._counted.last_end = done, now
        if done >= total:
            self.stop()
        else:
            self._open()

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

    def _go_on(self, seconds: float) -> None:
        """Print what is being made, or loaded, for so long; called by the heartbeat after `seconds` of silence."""
        made = [f"making {_running(row)}" for row in list(self._counted.rows.values()) if row.running]
        waiting = f"loading or planning, {timedelta(seconds=round(seconds))}"
        self._line(f"{', '.join(made) or waiting}; {self._counted}", is_told=False)

    def _line(self, text: str, *, is_told: bool = True) -> None:
        if is_told:
            self._heartbeat.said()
        self._console.print(printable(self._with_stage(text)), markup=False, highlight=False, soft_wrap=True)

    def _with_stage(self, text: str) -> str:
        if self.stage:
            return f"{self.stage}: {text}"
        return text


def expect(tell: Callable[[str, int, int], None], seconds: float | None) -> None:
    """Give a `LiveProgress` the estimated seconds of this and all later stages; other listeners get none."""
    if isinstance(tell, LiveProgress):
        tell.expect(seconds)


def more_to_come(listener: object, units: int) -> None:
    """Tell a `LiveProgress` how many units later stages have at most; other listeners get nothing."""
    if isinstance(listener, LiveProgress):
        listener.more_to_come(units)


def name_stage(listener: object, stage: str) -> None:
    """Give the next run of a `LiveProgress` a name, "" for none; other listeners get none."""
    if isinstance(listener, LiveProgress):
        listener.stage = stage


def progress_of(stage: str, tell: Callable[[str, int, int], None]) -> Progress:
    """The progress for a run that is one stage of a longer work."""
    if isinstance(tell, LiveProgress):
        tell.stage = stage
        return tell
    return Stage(tell, stage)
