"""The state of a run in numbers, and the time that is left.

Estimates take the units that were made, without pauses, so that a resumed run is not faster than it is.
"""

import math
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from operator import itemgetter

from galaxydit.pipelines.runs.unit import Record

RATE_OVER = 40  # last done units, over which the rate of a run is taken


@dataclass
class WorkerRow:
    """Done and failed units of one worker or host."""

    done: int = 0
    failed: int = 0
    seconds: float = 0.0  # wall-clock sum of the done units
    running: str = ""  # name of the unit that is being made
    started: float | None = None  # of that unit, on the clock of `time.monotonic`


@dataclass
class Tally:
    """The state of a run, to be shown."""

    total: int
    done: int = 0
    failed: int = 0
    # Start and end of the last done units, in seconds of any one clock
    spans: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=RATE_OVER))
    rows: dict[str, WorkerRow] = field(default_factory=dict)  # by worker or host
    later: int = 0  # most units of the stages to come, each as long as those of `spans`
    all_stages_end: float | None = None  # estimated, on the clock of `time.monotonic`
    last_end: float | None = None  # of a running work: when the last unit was finished, on this clock

    def add(self, name: str, record: Record) -> None:
        """Count a record in the run and in the row `name`, but not in `spans`."""
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
        """Estimated time for the remaining units and the later ones; None if unknown, or longer than was estimated.

        The rate is that of `spans`, without the time in which none of them was made.
        """
        if self.all_stages_end is not None:
            seconds = self.all_stages_end - time.monotonic()
        elif self.spans:
            passed = 0.0 if self.last_end is None else time.monotonic() - self.last_end
            seconds = (self.remaining + self.later) * _covered(self.spans) / len(self.spans) - passed
        else:
            return None
        return timedelta(seconds=round(seconds)) if round(seconds) > 0 else None

    def __str__(self) -> str:
        counts = f"{self.done} done, {self.failed} failed, {self.remaining} remaining"
        if (left := self.left) is None:
            return counts
        if self.all_stages_end is not None:
            return f"{counts}, all stages at most {left}"
        if self.later:
            return f"{counts}, at most {left} with the stages to come"
        return f"{counts}, {left} left" if self.remaining else counts


def _covered(spans: Iterable[tuple[float, float]]) -> float:
    """Length of the union of intervals, so that neither parallel units nor pauses between runs count twice."""
    covered, end = 0.0, -math.inf
    for start, stop in sorted(spans):
        covered += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return covered


def tally(records: Iterable[Record], total: int) -> Tally:
    """The tally of a store's records with a row for each host; worker processes change too often."""
    counted, spans = Tally(total), list[tuple[float, float]]()
    for record in records:
        counted.add(record.worker.rpartition(":")[0] or record.worker, record)
        if record.is_done:
            end = datetime.fromisoformat(record.finished_at).timestamp()
            spans.append((end - record.seconds, end))
    counted.spans.extend(sorted(spans, key=itemgetter(1)))
    return counted
