"""`run` in this process: what is made, kept, tried again and left by those who die."""

import errno
import gc
import os
import resource
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from galaxydit.pipelines.runs import InProcess, Outcome, Store, run
from galaxydit.pipelines.runs.run import full_disk_error
from galaxydit.pipelines.video import encode_video

TOUCHES = ("open", "os.rename", "os.remove", "os.mkdir")
FULL_DISK = 3


def content(store: Store) -> dict[str, Any]:
    """Results by unit, after a check of each record against its files."""
    found = {}
    for unit_id, record, damage in store.survey(sorted(store.unit_ids()), wholly=True):
        assert not damage
        found[unit_id] = (record.status, record.result, [file.sha256 for file in record.files.values()])
    return found


def test_units_are_made_once_and_the_maker_is_prepared_only_for_work(store: Store, makers: ModuleType):
    maker = makers.NoiseMaker()
    units = makers.noise_units(4)
    assert run(units[:2], maker, store) == Outcome(2, 0)
    assert run(units, maker, store) == Outcome(4, 0)
    assert maker.made == [0, 1, 2, 3]
    unused = makers.NoiseMaker()
    assert run(units, unused, store) == Outcome(4, 0)
    assert (unused.prepared, unused.made) == (0, [])


def test_an_executor_keeps_what_a_maker_loaded_over_several_runs(store: Store, makers: ModuleType):
    maker, executor = makers.NoiseMaker(), InProcess()
    for count in (1, 3):
        run(makers.noise_units(count), maker, store, executor)
    assert maker.prepared == 1


def test_units_of_a_group_are_made_one_after_the_other(store: Store, makers: ModuleType):
    units = makers.noise_units(6, per_group=2)
    maker = makers.NoiseMaker()
    run([units[0], units[2], units[4], units[1], units[3], units[5]], maker, store)
    assert maker.made == [0, 1, 2, 3, 4, 5]


def test_a_raising_unit_is_tried_three_times_recorded_and_made_again_on_request(store: Store, makers: ModuleType):
    units, maker = makers.noise_units(3), makers.NoiseMaker(trouble={1: "raise"})
    assert run(units, maker, store) == Outcome(2, 1)
    assert maker.made == [0, 1, 1, 1, 2]
    record = store.read(units[1].id)
    assert (record.status, record.attempts) == ("failed", 3)
    assert "RuntimeError: seed 1 is hard" in record.traceback
    assert run(units, makers.NoiseMaker(), store) == Outcome(2, 1)
    assert run(units, makers.NoiseMaker(), store, retry_failed=True) == Outcome(3, 0)


def test_a_unit_that_raises_twice_is_done(store: Store, makers: ModuleType):
    maker = makers.NoiseMaker(trouble={0: "raise"})

    def make(unit: Any, make: Callable[..., Any] = maker.make) -> Any:
        if len(maker.made) == 2:
            maker.trouble.clear()
        return make(unit)

    maker.make = make
    assert run(makers.noise_units(1), maker, store) == Outcome(1, 0)
    assert store.read(makers.noise_units(1)[0].id).attempts == 3


def test_a_unit_with_a_permanent_error_is_tried_once(store: Store, makers: ModuleType):
    maker = makers.NoiseMaker(trouble={0: "permanent"})
    assert run(makers.noise_units(1), maker, store) == Outcome(0, 1)
    assert maker.made == [0]


def test_a_result_that_cannot_be_stored_fails_its_unit_and_no_other(store: Store, makers: ModuleType):
    units, maker = makers.noise_units(3), makers.NoiseMaker(trouble={1: "overflow"})
    assert run(units, maker, store) == Outcome(2, 1)
    assert maker.made == [0, 1, 2]
    assert "the result of 00001 cannot be stored (Out of range float" in store.read(units[1].id).traceback
    assert not list(Path(store.root, "files").glob("00001-*"))


def test_damaged_units_are_made_again(store: Store, makers: ModuleType):
    units = makers.noise_units(4)
    run(units, makers.NoiseMaker(), store)
    before = content(store)
    files = [store.local_path(store.read(unit.id).files["noise.bin"].path) for unit in units]
    files[0].unlink()
    files[1].write_bytes(b"")
    Path(store.root, "units", f"{units[2].id}.json").write_text("{")
    files[3].write_bytes(files[3].read_bytes()[::-1])
    maker = makers.NoiseMaker()
    assert run(units, maker, store) == Outcome(4, 0)
    assert maker.made == [0, 1, 2]
    assert run(units, maker, store, verify=True) == Outcome(4, 0)
    assert maker.made == [0, 1, 2, 3]
    assert content(store) == before


def test_what_prepare_raises_stops_the_run(store: Store, makers: ModuleType):
    with pytest.raises(ValueError, match="no such model"):
        run(makers.noise_units(2), makers.NoiseMaker(trouble={-1: "refuse"}), store)
    assert store.unit_ids() == set()


def test_a_full_disk_stops_everything_with_the_number_of_units_that_are_done(store: Store, makers: ModuleType):
    units = makers.noise_units(3)
    with pytest.raises(OSError, match=r"no space is left for .* 1 of 3 units are done and stay done") as raised:
        run(units, makers.NoiseMaker(trouble={1: "full disk"}), store)
    assert raised.value.errno == errno.ENOSPC
    assert store.unit_ids() == {units[0].id}
    assert run(units, makers.NoiseMaker(), store) == Outcome(3, 0)


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """No file of this process may exceed this number of bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_limit_on_the_size_of_files_stops_everything_and_names_the_file(store: Store, makers: ModuleType):
    units, maker = makers.noise_units(3), makers.NoiseMaker()
    with file_size_limit(100), pytest.raises(OSError, match=r"run/files/00000-.*ulimit -f.* 0 of 3 units") as raised:
        run(units, maker, store)
    assert raised.value.errno == errno.EFBIG
    assert (maker.made, store.unit_ids(), list(store._list("files"))) == ([0], set(), [])
    assert run(units, maker, store) == Outcome(3, 0)


def test_where_a_video_is_encoded_is_named_if_that_place_is_full():
    frames = np.random.default_rng(0).random((4, 128, 128, 3)).astype(np.float32)
    with file_size_limit(10_000), pytest.raises(OSError, match=r"File too large") as raised:
        encode_video(frames, 8.0)
    assert (raised.value.errno, raised.value.filename) == (errno.EFBIG, tempfile.gettempdir())


def test_an_interrupt_leaves_a_store_that_goes_on(store: Store, makers: ModuleType):
    units = makers.noise_units(3)
    with pytest.raises(KeyboardInterrupt):
        run(units, makers.NoiseMaker(trouble={1: "interrupt"}), store)
    assert run(units, makers.NoiseMaker(), store) == Outcome(3, 0)


def interfere_at(count: int, root: str, interfere: Callable[[str], None]) -> None:
    """Call `interfere` from touch number `count` of this process below `root` on. Cannot be undone."""
    seen = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        if event in TOUCHES and root in str(arguments[0]):
            seen += 1
            if seen > count:
                interfere(event)

    sys.addaudithook(hook)


def run_in_child(work: Callable[[], Any], before: Callable[[], None]) -> int:
    """The exit code of a forked process, negative if it was killed."""
    child = os.fork()
    if child == 0:
        gc.disable()  # finalizers of the codecs of earlier tests would wait for threads that a fork leaves behind
        code = 1
        try:
            before()
            work()
            code = 0
        except OSError as error:
            code = FULL_DISK if full_disk_error(error) else 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.fixture
def undisturbed(tmp_path: Path, makers: ModuleType) -> dict[str, Any]:
    store = Store(tmp_path / "undisturbed")
    store.create("test", {})
    run(makers.noise_units(2), makers.NoiseMaker(), store)
    return content(store)


@pytest.mark.parametrize("ending", ["killed", "full"])
def test_stopped_at_any_touch_of_the_disk_the_next_run_ends_the_work(
    tmp_path: Path, undisturbed: dict[str, Any], makers: ModuleType, ending: str
):
    """Killed, or out of space: then nothing new can be written, and what is removed still can."""

    def interfere(event: str) -> None:
        if ending == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        elif event in ("open", "os.mkdir", "os.rename"):
            raise OSError(errno.ENOSPC, "No space left on device")

    def work(store: Store) -> None:
        store.create("test", {})
        run(makers.noise_units(2), makers.NoiseMaker(), store)

    code, count, expected = None, 0, -signal.SIGKILL if ending == "killed" else FULL_DISK
    while code != 0:
        store = Store(tmp_path / f"{ending}-{count}")
        code = run_in_child(lambda s=store: work(s), lambda n=count, s=store: interfere_at(n, s.root, interfere))
        assert code in (0, expected)
        if store.unit_ids():
            assert content(store).items() <= undisturbed.items()
        work(store)
        assert content(store) == undisturbed
        named = [len(list(store._list(folder))) for folder in ("units", "files")]
        assert named == [2, 2], "nothing may lie about but results"
        count += 1
    assert count > 20
