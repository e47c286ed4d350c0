"""Units made by actors of a Ray cluster (docs.ray.io), from a queue in the process that called `run`."""

import os
import socket
import warnings
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from galaxydit import errors
from galaxydit.errors import refusal
from galaxydit.foreign_text import logger_of
from galaxydit.pipelines.runs.cluster import LOOK_EVERY, Cluster
from galaxydit.pipelines.runs.run import Executor, Finished, Maker, Progress, Rank, attempt, make_and_commit, new_record
from galaxydit.pipelines.runs.store import Store
from galaxydit.pipelines.runs.unit import Record, Unit
from galaxydit.plugins import load_plugin, loaded_plugins

logger = logger_of(__name__)

DEATHS = 10  # of workers while they make the same unit, after which the unit is recorded as failed


class Process:
    """Ray actor, one process of a worker; the worker's first process commits records.

    Relative paths in units start at `folder`, the driver's, if this machine has it. `plugins` are those that the driver
    loaded by name.
    """

    def __init__(self, maker: Maker, store: Store, folder: str, plugins: Sequence[str] = ()) -> None:
        with suppress(OSError):
            os.chdir(folder)
        self._maker = maker
        self._store = store
        self._plugins = plugins

    def address(self) -> tuple[str, int]:
        """IP address of this node and a free port, at which the processes of one worker can meet."""
        import ray

        with socket.socket() as probe:
            probe.bind(("", 0))
            return ray.util.get_node_ip_address(), probe.getsockname()[1]

    def prepare(self, rank: Rank, meeting: tuple[str, int] | None) -> tuple[None, list[Warning]]:
        """Let the maker load, before `work`; `meeting` is the first process's `address`. Returns (None, warnings)."""
        self._rank = rank
        if meeting is not None:
            os.environ.update(MASTER_ADDR=meeting[0], MASTER_PORT=str(meeting[1]))
            os.environ.update(RANK=str(rank.index), WORLD_SIZE=str(rank.size), LOCAL_RANK="0")
        with _heard() as warned:
            for plugin in self._plugins:
                load_plugin(plugin)
            self._maker.prepare(rank)
        return None, warned

    def work(self, unit: Unit) -> tuple[Record | None, list[Warning]]:
        """The unit's committed record (None in all but the first process), and the plugin's warnings."""
        with _heard() as warned:
            if self._rank.size == 1:
                return make_and_commit(unit, self._maker, self._store), warned
            record, files = attempt(unit, self._maker)
        return self._store.commit(record, files) if self._rank.index == 0 else None, warned


@contextmanager
def _heard() -> Iterator[list[Warning]]:
    """Context whose list gets the plugin's warnings, for the driver to repeat; others are shown here."""
    heard: list[Warning] = []
    with warnings.catch_warnings(record=True) as caught:
        yield heard
    for each in caught:
        if each.category.__module__ == errors.__name__:
            heard.append(each.message if isinstance(each.message, Warning) else each.category(each.message))
        else:
            warnings.showwarning(each.message, each.category, each.filename, each.lineno)


@dataclass(eq=False)
class Worker:
    """A worker as the driver sees it: handles of its actors, and the units that it is to make."""

    number: int
    actors: list[Any]
    group: Any  # Ray's placement group, if there are several actors
    units: deque[Unit] = field(default_factory=deque)  # left of its present group; the first is being made
    record: Any = None  # of the unit that is being made, once the first actor has committed it; before, of the last one


class OnRay(Executor, AbstractContextManager["OnRay"]):
    """Makes units on a Ray cluster; leaving the context ends the workers, and a cluster of its own.

    Args:
        address: "local" starts a cluster on this machine; "auto", "host:port" and "ray://host:port" join one.
        workers: by default the cluster's GPUs // `gpus_per_worker`, or 1 without GPUs.
        gpus_per_worker: by default 1 if there are GPUs, else 0; several share each video.

    Raises GalaxyDiTError without Ray or enough GPUs, and ConnectionError if no cluster answers or it is lost.
    """

    def __init__(self, address: str = "local", workers: int | None = None, gpus_per_worker: int | None = None) -> None:
        self._cluster = Cluster(address, cpus=max(workers or 1, os.cpu_count() or 1))
        self._ray = self._cluster.ray
        there = self._cluster.gpus()
        self._asked = workers
        self._gpus = gpus_per_worker if gpus_per_worker is not None else int(there > 0)
        if self._cluster.is_local and self._gpus > there:  # Ray would wait for more without end
            self._cluster.end()
            raise refusal("gpus_per_worker", self._gpus, f"at most {there:g}, the GPUs of this machine", "pass fewer")
        if self._gpus > there:
            logger.warning("each worker needs %d GPUs and the cluster has %g: waiting for more", self._gpus, there)
        self._workers: list[Worker] = []
        self._pending: dict[Any, Worker] = {}  # by the reference of a call; an idle worker has none
        self._serves: tuple[Maker, str] | None = None
        self._deaths: Counter[str] = Counter()

    def work(self, groups: Sequence[Sequence[Unit]], maker: Maker, store: Store, progress: Progress) -> Finished:
        if self._serves != (maker, store.address):
            self._stop_workers(self._workers)
            self._serves = maker, store.address
        self._store = store
        self._progress = progress
        self._queue = deque(deque(group) for group in groups)
        try:
            while self._queue or any(worker.units for worker in self._workers):
                self._cluster.check()
                busy = sum(bool(worker.units) for worker in self._workers)
                while len(self._workers) < min(self._capacity(), busy + len(self._queue)):
                    self._start_worker(maker)
                for worker in self._workers:
                    if self._queue and worker not in self._pending.values():
                        worker.units = self._queue.popleft()
                        self._begin(worker)
                done, _ = self._ray.wait(list(self._pending), timeout=LOOK_EVERY)
                for reference in done:
                    yield from self._receive(reference)
        except ConnectionError:
            # they end with their cluster, which no longer takes orders
            self._workers = []
            self._pending = {}
            raise
        except BaseException:
            self._stop_workers(self._workers)  # they are in the middle of units that nobody waits for
            raise

    def __exit__(self, *_: object) -> None:
        self._stop_workers(self._workers)
        self._cluster.end()

    def _capacity(self) -> int:
        if self._asked is not None or not self._gpus:
            return self._asked or 1
        return max(1, int(self._cluster.gpus() // self._gpus))

    def _start_worker(self, maker: Maker) -> None:
        size = max(1, self._gpus)
        options: dict[str, Any] = {"num_cpus": 1, "num_gpus": min(1, self._gpus), "max_restarts": 0}
        group = None
        if size > 1:
            from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

            group = self._ray.util.placement_group([{"CPU": 1, "GPU": 1}] * size, strategy="PACK")
            options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(group)
        kind = self._ray.remote(Process).options(**options)
        plugins = loaded_plugins()
        actors: list[Any] = [kind.remote(maker, self._store, os.getcwd(), plugins) for _ in range(size)]
        meeting = None
        if size > 1:
            meeting = actors[0].address.remote()
        number = min(set(range(len(self._workers) + 1)) - {worker.number for worker in self._workers})
        worker = Worker(number, actors, group)
        self._workers.append(worker)
        for rank, actor in enumerate(actors):
            self._pending[actor.prepare.remote(Rank(rank, size), meeting)] = worker

    def _begin(self, worker: Worker) -> None:
        self._progress.begin(worker.number, worker.units[0])
        for actor in worker.actors:
            self._pending[actor.work.remote(worker.units[0])] = worker

    def _receive(self, reference: Any) -> Finished:
        """Take the result of an ended call; begin the worker's next unit, or replace a dead worker."""
        worker = self._pending.pop(reference, None)
        if worker is None:  # an actor of a worker that is gone
            return
        try:
            record, warned = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            raise (error.cause or error) from error
        except self._ray.exceptions.RayError as error:
            yield from self._replace(worker, error)
            return
        worker.record = record or worker.record
        for each in warned:
            warnings.warn(each, stacklevel=2)
        if not worker.units or worker in self._pending.values():  # it has loaded, or not all of its actors are ready
            return
        worker.units.popleft()
        yield worker.number, worker.record
        if worker.units:
            self._begin(worker)

    def _replace(self, worker: Worker, error: Exception) -> Finished:
        """Remove a dead worker and put the rest of its group back at the front of the queue.

        A unit at which `DEATHS` workers died is recorded as failed; raises ChildProcessError if they died while
        loading.
        """
        logger.warning("worker %d is gone (%s); its unit goes to another", worker.number, type(error).__name__)
        self._stop_workers([worker])
        cause = worker.units[0].id if worker.units else "loading"
        self._deaths[cause] += 1
        if self._deaths[cause] >= DEATHS:
            if not worker.units:
                raise ChildProcessError(
                    f"{DEATHS} workers died before their first unit, the last with: {error}; look for lack of memory, "
                    "and try fewer --workers"
                )
            trace = f"{DEATHS} workers died while they made this unit; the last time: {error}"
            record = new_record(worker.units.popleft(), None, trace, attempts=DEATHS)
            yield worker.number, self._store.commit(record, {})
        if worker.units:
            self._queue.appendleft(worker.units)

    def _stop_workers(self, workers: Sequence[Worker]) -> None:
        for worker in list(workers):
            self._workers.remove(worker)
            self._pending = {reference: other for reference, other in self._pending.items() if other is not worker}
            with suppress(Exception):  # the cluster may be what died
                for actor in worker.actors:
                    self._ray.kill(actor)
                if worker.group is not None:
                    self._ray.util.remove_placement_group(worker.group)
