"""Units made by several processes of this machine, which share its device: for models that leave most of a GPU idle."""

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager
from typing import Any

from galaxydit.pipelines.runs.run import Executor, Finished, Maker, Progress, Rank, make_and_commit
from galaxydit.pipelines.runs.store import Store
from galaxydit.pipelines.runs.unit import Record, Unit
from galaxydit.plugins import load_plugin, loaded_plugins

MOST_AT_A_TIME = 4  # units of a group that one process makes, so that a large group does not wait for one process


class InProcesses(Executor, AbstractContextManager["InProcesses"]):
    """Makes units in `count` processes at once; leaving the context ends them.

    The units of a group may come at once, so what they share should be made before. Videos share the device, so their
    seconds are longer than those of a video alone. Raises ChildProcessError if a process dies, for example for lack of
    memory.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._pool: ProcessPoolExecutor | None = None
        self._serves: tuple[Maker, str] | None = None

    def work(self, groups: Sequence[Sequence[Unit]], maker: Maker, store: Store, progress: Progress) -> Finished:
        if self._pool is None or self._serves != (maker, store.address):
            self._end()
            self._serves = maker, store.address
            self._pool = process_pool(self.count, _begin, maker, store, loaded_plugins())
        parts = [part for group in groups for part in batched(group, MOST_AT_A_TIME)]
        made: dict[Future[list[Record]], Sequence[Unit]] = {self._pool.submit(_work, part): part for part in parts}
        try:
            for future in as_completed(made):
                for record, unit in zip(future.result(), made[future], strict=True):
                    progress.begin(0, unit)
                    yield 0, record
        except BrokenProcessPool as error:
            self._end()
            raise ChildProcessError(
                "a process that made videos ended; look for lack of memory, and try fewer --processes; run the "
                "same command again to continue"
            ) from error
        except BaseException:
            self._end()  # it is in the middle of units that nobody waits for
            raise

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None


class _Work:
    """What one process makes: its maker, loaded at the first unit, whose errors reach the run that way."""

    maker: Maker
    store: Store
    is_prepared = False


def batched(units: Sequence[Unit], size: int) -> Iterator[Sequence[Unit]]:
    for start in range(0, len(units), size):
        yield units[start : start + size]


def process_pool(count: int, begin: Callable[..., None] | None = None, *given: Any) -> ProcessPoolExecutor:
    """Processes that share this machine's cores and its device; each first calls `begin(*given)`."""
    threads = max(1, (os.cpu_count() or 1) // count)
    # A forked process could not use CUDA.
    spawn = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(count, mp_context=spawn, initializer=_begin_process, initargs=(threads, begin, given))


def _begin_process(threads: int, begin: Callable[..., None] | None, given: tuple[Any, ...]) -> None:
    import torch  # here, because whoever only reads a run must not wait for it

    torch.set_num_threads(threads)
    if begin is not None:
        begin(*given)


def _begin(maker: Maker, store: Store, plugins: Sequence[str]) -> None:
    for plugin in plugins:
        load_plugin(plugin)
    _Work.maker, _Work.store = maker, store


def _work(group: Sequence[Unit]) -> list[Record]:
    """The committed records of the units."""
    if not _Work.is_prepared:
        _Work.maker.prepare(Rank())
        _Work.is_prepared = True
    return [make_and_commit(unit, _Work.maker, _Work.store) for unit in group]
