import io
import re
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from threading import Event
from types import ModuleType

import pytest
from rich.console import Console

from galaxydit.pipelines.heartbeat import Heartbeat
from galaxydit.pipelines.runs import LiveProgress, Record, Store, expect, more_to_come, progress_of, run
from galaxydit.pipelines.runs.progress import render
from galaxydit.pipelines.runs.tally import Tally, tally

START = datetime(2026, 1, 1, tzinfo=UTC)
RECORD = Record("a", {}, "done", 1, 2.0, "node:1", START.isoformat())


def at(minute: int, worker: str = "node:1", failed: bool = False) -> Record:
    status = {"status": "failed", "traceback": "Error"} if failed else {}
    return replace(RECORD, finished_at=(START + timedelta(minutes=minute)).isoformat(), worker=worker, **status)


def lasting(seconds: float, record: Record) -> Record:
    return replace(record, seconds=seconds)


def test_a_tally_counts_by_status_and_folds_the_processes_of_a_host():
    counted = tally([at(4, "b:2"), at(0), at(2, "node:7", failed=True), at(6, "node:8")], total=10)
    assert (counted.done, counted.failed, counted.remaining) == (3, 1, 6)
    assert {host: (row.done, row.failed) for host, row in counted.rows.items()} == {"b": (1, 0), "node": (2, 1)}


def test_the_time_left_follows_from_units_that_are_done():
    counted = tally([lasting(120, at(minute)) for minute in (6, 0, 2, 4)], total=10)
    assert counted.left == timedelta(minutes=12)
    assert str(counted) == "4 done, 0 failed, 6 remaining, 0:12:00 left"
    assert tally([at(0, failed=True), at(1, failed=True)], 10).left is None


def test_a_pause_before_a_run_was_resumed_is_not_in_its_rate():
    day = 24 * 60
    counted = tally([lasting(60, at(minute)) for minute in (0, 1, day, day + 1)], total=8)
    assert counted.left == timedelta(minutes=4)


def test_units_that_were_made_at_the_same_time_count_once():
    counted = tally([lasting(120, at(minute, worker)) for minute in (2, 4) for worker in ("a:1", "b:1")], total=8)
    assert counted.left == timedelta(minutes=4)


def test_the_time_left_falls_while_a_unit_is_made_and_is_left_out_when_it_is_over(monkeypatch: pytest.MonkeyPatch):
    clock = 100.0
    monkeypatch.setattr("time.monotonic", lambda: clock)
    counted = Tally(3, done=1, last_end=100.0)
    counted.spans.append((90.0, 100.0))
    assert str(counted).endswith("2 remaining, 0:00:20 left")
    clock = 115.0
    assert str(counted).endswith("2 remaining, 0:00:05 left")
    clock = 125.0
    assert str(counted).endswith("2 remaining")


def test_without_a_record_there_is_no_rate_and_at_the_end_nothing_is_left():
    assert tally([], 2).left is None
    assert str(tally([], 2)) == "0 done, 0 failed, 2 remaining"
    assert str(tally([at(0), at(1)], 2)) == "2 done, 0 failed, 0 remaining"


def test_outside_a_terminal_each_unit_is_a_plain_line(store: Store, makers: ModuleType):
    units, out = makers.noise_units(3), io.StringIO()
    run(units[:1], makers.NoiseMaker(), store)
    run(units, makers.NoiseMaker(trouble={2: "permanent"}), store, progress=LiveProgress(Console(file=out, width=200)))
    lines = out.getvalue().splitlines()
    assert "\x1b" not in out.getvalue()
    assert lines[0] == "start; 1 done, 0 failed, 2 remaining"
    assert lines[1] == f"{units[1].id} done in 0.0 s; 2 done, 0 failed, 1 remaining"
    assert lines[2].startswith(f"{units[2].id} failed in 0.0 s; 2 done, 1 failed, 0 remaining")


def test_in_a_terminal_one_view_shows_all(store: Store, makers: ModuleType):
    out = io.StringIO()
    progress = LiveProgress(Console(file=out, force_terminal=True, width=80))
    run(makers.noise_units(2), makers.NoiseMaker(), store, progress=progress)
    assert "2 done, 0 failed, 0 remaining" in out.getvalue()


def test_stages_with_and_without_units_are_named(store: Store, makers: ModuleType):
    out = io.StringIO()
    with LiveProgress(Console(file=out, width=200)) as progress:
        run(makers.noise_units(1), makers.NoiseMaker(), store, progress=progress_of("recording", progress))
        for done in (1, 2):
            progress("planning", done, 2)
    assert [line.split(";")[0] for line in out.getvalue().splitlines()][::2] == ["recording: start", "planning: start"]
    told: list[tuple[str, int, int]] = []
    stage = progress_of("recording", lambda *counts: told.append(counts))
    run(makers.noise_units(2), makers.NoiseMaker(), store, progress=stage)
    assert told == [("recording", 1, 2), ("recording", 2, 2)]


def test_an_estimate_of_all_stages_takes_the_place_of_the_time_left_of_each(store: Store, makers: ModuleType):
    out = io.StringIO()
    with LiveProgress(Console(file=out, width=200)) as progress:
        expect(progress, 3601.0)
        expect(lambda *_: None, 1.0)
        run(makers.noise_units(3), makers.NoiseMaker(), store, progress=progress_of("recording", progress))
    lines = out.getvalue().splitlines()
    assert all(re.search(r"remaining, all stages at most (1:00:0|0:59:)\d", line) for line in lines)
    assert " left" not in out.getvalue()


def test_units_of_later_stages_are_in_the_time_left_at_the_rate_of_all_stages(store: Store, makers: ModuleType):
    out, units = io.StringIO(), makers.noise_units(4)
    progress = LiveProgress(Console(file=out, width=200))
    progress._counted.spans.append((0.0, 1e6))  # of a stage whose units take longer
    more_to_come(progress, 2)
    more_to_come(object(), 2)
    run(units[:2], makers.NoiseMaker(), store, progress=progress)
    more_to_come(progress, 0)
    rate = Tally(2)
    rate.spans.extend([(0.0, 10.0), (10.0, 20.0)])
    rate.later = 3
    assert str(rate) == "0 done, 0 failed, 2 remaining, at most 0:00:50 with the stages to come"
    assert len(progress._counted.spans) == 2
    run(units, makers.NoiseMaker(), store, progress=progress)
    assert len(progress._counted.spans) == 4


def test_a_long_silence_is_broken_by_what_is_being_made(store: Store, makers: ModuleType):
    out = io.StringIO()
    progress = LiveProgress(Console(file=out, width=200))
    progress.start(3, 0, 0)
    progress._go_on(20.0)
    progress.begin(0, makers.noise_units(1)[0])
    progress._counted.rows["0"].started = time.monotonic() - 18  # it began after the last line
    progress._go_on(41.0)
    progress.stop()
    assert out.getvalue().splitlines()[1:] == [
        "loading or planning, 0:00:20; 0 done, 0 failed, 3 remaining",
        f"making {makers.noise_units(1)[0].name}, 0:00:18; 0 done, 0 failed, 3 remaining",
    ]


def test_a_heartbeat_tells_after_each_silence_until_something_is_said():
    told, first, second = list[float](), Event(), Event()

    def tell(seconds: float) -> None:
        told.append(seconds)
        (second if len(told) > 1 else first).set()

    with Heartbeat(tell, quiet=0.02):
        assert first.wait(5)
        assert second.wait(5)
    assert 0.02 <= told[0] < told[1]
    assert told[1] >= 0.04
    count = len(told)
    with Heartbeat(tell, quiet=1e6) as heart:
        heart.said()
    assert len(told) == count


@pytest.mark.parametrize("running", ["", "00001"])
def test_the_view_has_a_row_for_each_worker_and_fits_80_columns(running: str):
    out, counted = io.StringIO(), tally([at(0), at(1, "b:2", failed=True)], 4)
    counted.rows["b"].running = running
    Console(file=out, width=80).print(render(counted))
    text = out.getvalue()
    assert "1 done, 1 failed, 2 remaining" in text
    assert text.index("\nnode") < text.index("\nb ")
    assert running in text


def test_control_characters_of_a_record_do_not_reach_the_terminal():
    out = io.StringIO()
    nasty = "\x1b]0;pwn\x07\x1b[2J"
    Console(file=out, width=80).print(render(tally([at(0, f"{nasty}:1")], 1)))
    LiveProgress(Console(file=out, width=80)).finish(0, replace(RECORD, unit=nasty))
    assert not set(out.getvalue()) & {"\x1b", "\x07"}
    assert "\\x1b]0;pwn\\x07\\x1b[2J" in out.getvalue()
