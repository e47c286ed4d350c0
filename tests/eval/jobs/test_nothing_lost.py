"""A worker that dies, or finds no space, at any single touch of the disk. Videos are invented; the rest is real."""

import errno
import hashlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from galaxydit.eval.jobs import runner, work
from galaxydit.eval.jobs.job import Job, Variant
from galaxydit.eval.jobs.record import Record, RunFolder, Unit
from galaxydit.eval.jobs.runner import Worker

TOUCHES = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.utime", "os.link")
FULL_DISK = 3


def interfere_at(count: int, root: Path, interfere: Callable[[str], None]) -> None:
    """Call `interfere` from touch number `count` of this process below `root` on. Cannot be undone."""
    seen = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        if (
            event in TOUCHES
            and threading.current_thread() is threading.main_thread()
            and str(root) in str(arguments[0])
        ):
            seen += 1
            if seen > count:
                interfere(event)

    sys.addaudithook(hook)


def run_in_child(worker: Worker, before: Callable[[], None]) -> int:
    """The exit code of a forked worker, negative if it was killed."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            before()
            worker.run()
            code = 0
        except OSError as error:
            code = FULL_DISK if runner._is_disk_full(error) else 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def content(folder: RunFolder) -> dict[str, tuple[str, str | None, str | None]]:
    """What a run has made, after a check of each record against its video."""
    records: list[Record] = folder.records()
    for record in records:
        assert record.is_done
        video = (folder.root / record.video).read_bytes()
        assert hashlib.sha256(video).hexdigest() == record.video_sha256
    return {record.unit: (record.status, record.frames_sha256, str(record.metrics)) for record in records}


def let_claims_expire(folder: RunFolder) -> None:
    """As if nobody had touched them for years."""
    for path in folder.claims.iterdir():
        os.utime(path, (1, 1))


def is_tidy(folder: RunFolder) -> bool:
    """Whether nothing lies about but results."""
    left = [path for kind in (folder.scratch, folder.frames, folder.claims) for path in kind.rglob("*")]
    return all(path.name.startswith(".clock") for path in left)


@pytest.fixture
def undisturbed(tmp_path: Path, invented_worker: Callable[..., Worker], invented_job: Job) -> dict[str, Any]:
    worker = invented_worker(tmp_path / "undisturbed", invented_job)
    worker.run()
    return content(worker.folder)


def test_killed_at_any_touch_of_the_disk_the_next_worker_ends_the_job(
    tmp_path: Path, undisturbed: dict[str, Any], invented_worker: Callable[..., Worker], invented_job: Job
):
    code, count = -signal.SIGKILL, 0
    while code != 0:
        root = tmp_path / f"killed-{count}"
        worker = invented_worker(root, invented_job)
        code = run_in_child(
            worker, lambda n=count, root=root: interfere_at(n, root, lambda _: os.kill(os.getpid(), signal.SIGKILL))
        )
        assert code in (0, -signal.SIGKILL)
        for path in worker.folder.units.glob("*"):
            assert path.suffix == ".json", "only whole records may lie there"
        let_claims_expire(worker.folder)
        invented_worker(root, invented_job).run()
        assert content(worker.folder) == undisturbed
        assert is_tidy(worker.folder)
        count += 1
    assert count > 20


def test_on_a_full_disk_the_job_stops_and_goes_on_once_there_is_space(
    tmp_path: Path, undisturbed: dict[str, Any], invented_worker: Callable[..., Worker], invented_job: Job
):
    """From some touch on, nothing new can be written; what is removed or given back still can."""

    def no_space(event: str) -> None:
        if event in ("open", "os.mkdir", "os.rename"):
            raise OSError(errno.ENOSPC, "No space left on device")

    code, count = FULL_DISK, 0
    while code != 0:
        root = tmp_path / f"full-{count}"
        worker = invented_worker(root, invented_job)
        code = run_in_child(worker, lambda n=count, root=root: interfere_at(n, root, no_space))
        assert code in (0, FULL_DISK)
        assert content(worker.folder).items() <= undisturbed.items()
        invented_worker(root, invented_job).run()
        assert content(worker.folder) == undisturbed
        count += 3
    assert count > 20


def test_a_raising_unit_is_tried_three_times_and_the_job_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, invented_worker: Callable[..., Worker], invented_job: Job
):
    worker = invented_worker(tmp_path / "run", replace(invented_job, prompts=("a cat", "a dog")))
    calls, invent = [], work.make

    def raise_on_dogs(pipe: Any, variant: Variant, prompt: str, *args: Any, **kwargs: Any) -> Any:
        if (variant.name, prompt) == ("fast", "a dog"):
            calls.append(prompt)
            raise RuntimeError("dogs are hard")
        return invent(pipe, variant, prompt, *args, **kwargs)

    monkeypatch.setattr(work, "make", raise_on_dogs)
    worker.run()
    assert len(calls) == 3
    failed = [record for record in worker.folder.records() if not record.is_done]
    assert [(record.variant, record.prompt, record.attempts) for record in failed] == [("fast", "a dog", 3)]
    assert "RuntimeError: dogs are hard" in failed[0].traceback
    assert len(worker.folder.records()) == 4
    assert is_tidy(worker.folder)


def test_a_unit_that_raises_twice_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, invented_worker: Callable[..., Worker], invented_job: Job
):
    worker = invented_worker(tmp_path / "run", invented_job)
    errors, invent = [RuntimeError("one"), RuntimeError("two")], work.make

    def raise_first(*args: Any, **kwargs: Any) -> Any:
        if errors:
            raise errors.pop()
        return invent(*args, **kwargs)

    monkeypatch.setattr(work, "make", raise_first)
    worker.run()
    assert [(record.status, record.attempts) for record in worker.folder.records()] == [("done", 3), ("done", 1)]


def test_variants_of_a_failed_baseline_fail_and_are_made_again_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, invented_worker: Callable[..., Worker], invented_job: Job
):
    worker, invent = invented_worker(tmp_path / "run", invented_job), work.make

    def raise_on_baseline(pipe: Any, variant: Variant, *args: Any, **kwargs: Any) -> Any:
        if variant.name == "baseline":
            raise RuntimeError("no luck")
        return invent(pipe, variant, *args, **kwargs)

    monkeypatch.setattr(work, "make", raise_on_baseline)
    worker.run()
    records = worker.folder.records()
    assert [record.status for record in records] == ["failed", "failed"]
    assert "failed, so there is nothing to compare with" in records[1].traceback
    monkeypatch.setattr(work, "make", invent)
    assert runner.drop_failed(worker.folder, worker.claims) == 2
    worker.run()
    assert [record.status for record in worker.folder.records()] == ["done", "done"]


@pytest.mark.parametrize("damage", ["gone", "cut", "other"])
def test_a_baseline_whose_frames_are_gone_or_damaged_is_made_again_for_its_variants(
    tmp_path: Path,
    damage: str,
    undisturbed: dict[str, Any],
    invented_worker: Callable[..., Worker],
    invented_job: Job,
):
    worker = invented_worker(tmp_path / "run", invented_job)
    baseline, variant = invented_job.units()
    scratch = worker.folder.scratch / "a"
    worker.workshop.commit(baseline, scratch, worker.workshop.make(baseline, scratch, 1))
    path = worker.folder.baseline_frames(baseline.id)
    if damage == "gone":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[:1000])
    else:
        np.savez(path, frames=np.zeros((3, 16, 16, 3), np.float32))
    worker.run()
    assert worker.progress.finished == [variant.id]
    assert content(worker.folder) == undisturbed


def test_what_a_worker_makes_after_it_was_taken_for_dead_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, invented_worker: Callable[..., Worker], invented_job: Job
):
    """The sleeper wakes with its video made, while another process has the unit."""
    sleeper, invent, other = invented_worker(tmp_path / "run", invented_job), work.make, []

    def sleep_at_baseline(pipe: Any, variant: Variant, *args: Any, **kwargs: Any) -> Any:
        if variant.name == "baseline" and not other:
            (claim,) = sleeper.folder.claims.glob("*-baseline.0")
            os.utime(claim, (1, 1))
            other.append(sleeper.claims.take(claim.stem))
        return invent(pipe, variant, *args, **kwargs)

    monkeypatch.setattr(work, "make", sleep_at_baseline)
    unit: Unit = invented_job.units()[0]
    claim = sleeper.claims.take(unit.id)
    sleeper._finish(unit, claim)
    assert claim.is_lost
    assert sleeper.folder.finished() == set()
    with other[0]:
        sleeper._finish(unit, other[0])
    assert sleeper.folder.finished() == {unit.id}


def test_variants_wait_for_their_baseline_while_other_work_goes_on(
    tmp_path: Path, invented_worker: Callable[..., Worker], invented_job: Job
):
    worker = invented_worker(tmp_path / "run", replace(invented_job, prompts=("a cat", "a dog")))
    cat, _, dog, _ = invented_job_units = worker.units
    assert worker.claims.take(cat.id) is not None
    unit, claim = worker._take(worker._left())
    assert unit == dog
    with claim:
        worker._finish(unit, claim)
    unit, claim = worker._take(worker._left())
    assert unit == invented_job_units[3]
    with claim:
        worker._finish(unit, claim)
    assert worker._take(worker._left()) is None
