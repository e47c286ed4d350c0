import io
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from rich.console import Console

from galaxydit.eval.jobs.job import Job
from galaxydit.eval.jobs.progress import Progress, render, tally
from galaxydit.eval.jobs.rank import Rank
from galaxydit.eval.jobs.record import Record
from galaxydit.eval.jobs.runner import Worker

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def record(tmp_path: Path, invented_worker: Callable[..., Worker], invented_job: Job) -> Record:
    worker = invented_worker(tmp_path / "run", invented_job)
    worker.run()
    return worker.folder.records()[0]


def at(record: Record, minute: int, worker: str = "node:1", rank: int = 0, failed: bool = False) -> Record:
    moment = (START + timedelta(minutes=minute)).isoformat()
    status = {"status": "failed", "traceback": "Error"} if failed else {}
    return replace(record, finished_at=moment, worker=worker, rank=rank, **status)


def test_a_tally_counts_by_status_and_by_process(record: Record):
    records = [at(record, 4, "b:2", 1), at(record, 0), at(record, 2, failed=True), at(record, 6)]
    counted = tally(records, total=10)
    assert (counted.done, counted.failed, counted.remaining) == (3, 1, 6)
    assert [(w.worker, w.rank, w.done, w.failed, w.last.minute) for w in counted.workers] == [
        ("node:1", 0, 2, 1, 6),
        ("b:2", 1, 1, 0, 4),
    ]


def test_rate_and_time_left_follow_from_the_times_of_the_records(record: Record):
    counted = tally([at(record, minute) for minute in (0, 2, 4, 6)], total=10)
    assert counted.per_hour == 30
    assert counted.left == timedelta(minutes=12)
    assert str(counted) == "4 done, 0 failed, 6 remaining, 30 videos/h, 0:12:00 left"


def test_a_pause_before_this_session_does_not_count(record: Record):
    records = [at(record, 0), at(record, 10_000), at(record, 10_001)]
    assert tally(records, 10, since=START + timedelta(minutes=9_999)).per_hour == 60


def test_without_two_records_there_is_no_rate_and_at_the_end_nothing_is_left(record: Record):
    assert tally([at(record, 0)], 2).left is None
    assert str(tally([], 2)) == "0 done, 0 failed, 2 remaining"
    assert tally([at(record, 0)], 1).left == timedelta(0)


def test_outside_a_terminal_each_own_unit_is_a_plain_line(
    tmp_path: Path, invented_worker: Callable[..., Worker], invented_job: Job
):
    worker, out = invented_worker(tmp_path / "run", invented_job), io.StringIO()
    console = Console(file=out, soft_wrap=True)
    with Progress(worker.folder, invented_job, Rank(1), console) as progress:
        worker.progress = progress
        worker.run()
        progress.wait()
        progress.wait()
    lines = out.getvalue().splitlines()
    assert "\x1b" not in out.getvalue()
    first, second = (unit.id for unit in invented_job.units())
    assert lines[0] == "rank 1: begins; 0 done, 0 failed, 2 remaining"
    assert lines[1] == f"rank 1: {first} done in 2.0 s; 1 done, 0 failed, 1 remaining"
    assert lines[2].startswith(f"rank 1: {second} done in 2.0 s; 2 done, 0 failed, 0 remaining")
    assert len([line for line in lines if "waiting for units of other processes" in line]) == 1


def test_in_a_terminal_the_main_process_shows_all_and_the_others_nothing(
    tmp_path: Path, invented_worker: Callable[..., Worker], invented_job: Job
):
    worker = invented_worker(tmp_path / "run", invented_job)
    worker.run()
    out = io.StringIO()
    with Progress(worker.folder, invented_job, Rank(), Console(file=out, force_terminal=True)):
        pass
    assert "2 done, 0 failed, 0 remaining" in out.getvalue()
    assert "node:1" in out.getvalue()


def test_the_view_has_a_row_for_each_process(record: Record):
    out = io.StringIO()
    Console(file=out, width=100).print(render(tally([at(record, 0), at(record, 1, "b:2", 1, failed=True)], 4), "doing"))
    text = out.getvalue()
    assert "1 done, 1 failed, 2 remaining" in text
    assert text.index("node:1") < text.index("b:2")
    assert "doing" in text
