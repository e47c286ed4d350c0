"""Runs on Ray under kills, against the same runs left alone; what Ray costs; and very many units.

`python tests/pipelines/runs/acceptance.py --out DIR` prints four tables and exits with 1 if a record is missing or
differs. Units sleep, then return the hash of noise that depends on their seed.
"""

import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import psutil
import typer
from makers import NoiseMaker, is_alive, noise_units
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from galaxydit.commands.console import resumable
from galaxydit.pipelines.runs import Executor, OnRay, Record, Store, Unit, run
from galaxydit.pipelines.runs.run import Progress
from galaxydit.pipelines.runs.tally import tally

PATIENCE = 60.0  # seconds for a driver whose cluster died to end by itself
STOP_WITHIN = 30.0  # seconds between SIGTERM and SIGKILL, the default of Kubernetes and of Slurm
GONE_WITHIN = 10.0  # seconds for the processes of a driver to follow it
STARTED = 3  # records after which a driver is hit
KILLS = Counter(raylet=6, head=2, worker=3, driver=3, stop=2)
PARTS = ("kills", "node", "overhead", "many")

app = typer.Typer(add_completion=False)
console = Console(width=160)  # tables in files, too, are whole


def show(title: str, **cells: Any) -> None:
    table = Table(box=SIMPLE_HEAD, title=title, padding=(0, 1, 0, 0))
    for heading in cells:
        table.add_column(heading.replace("_", " "), justify="right", no_wrap=True)
    table.add_row(*(f"{cell:.2f}" if isinstance(cell, float) else str(cell) for cell in cells.values()))
    console.print(table)


def open_store(path: Path) -> Store:
    store = Store(path)
    store.create("acceptance", {})
    return store


def same_records(units: list[Unit], store: Store, expected: Store) -> int:
    """How many units have a sound record with the result of the undisturbed run."""
    wanted = {name: record.result for name, record, _ in expected.survey([unit.id for unit in units]) if record}
    found = store.survey([unit.id for unit in units], wholly=True)
    return sum(record is not None and not damage and record.result == wanted[name] for name, record, damage in found)


@app.command()
def drive(out: Path, units: int, workers: int, seconds: float) -> None:
    """One driver, as `galaxydit eval run --ray` is one; started, and killed, by `check` and by the tests."""
    store = open_store(out)
    with resumable(lambda: f"{len(store.unit_ids())} of {units} done"), OnRay(workers=workers) as executor:
        run(noise_units(units), NoiseMaker(seconds), store, executor)


class Driver:
    """A driver in a process group of its own, as batch systems start one."""

    def __init__(self, out: Path, units: int, seconds: float) -> None:
        command = [sys.executable, __file__, "drive", str(out), str(units), "2", str(seconds)]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, start_new_session=True, **quiet)
        self.cluster: set[psutil.Process] = set()

    def look(self) -> dict[str, list[psutil.Process]]:
        """Its processes by kind; all of them are remembered."""
        kinds = {"raylet": "/raylet/raylet ", "head": "/gcs/gcs_server ", "worker": "ray::Process"}
        found: dict[str, list[psutil.Process]] = {kind: [] for kind in kinds}
        with suppress(psutil.Error):
            for process in psutil.Process(self.process.pid).children(recursive=True):
                self.cluster.add(process)
                with suppress(psutil.Error):
                    line = " ".join(process.cmdline())
                    for kind, mark in kinds.items():
                        found[kind] += [process] * (mark in line)
        return found

    def hit(self, kind: str, draw: random.Random) -> bool:
        """Kill a process of this kind, or send what a batch system sends. Whether the driver went on, or ended as it
        must: by itself and with an exit code, unless it was killed.
        """
        found = self.look()
        if kind == "stop":
            os.killpg(self.process.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(STOP_WITHIN)
            ended = self.process.poll() == 128 + signal.SIGTERM
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            return ended
        if kind == "driver":
            self.process.kill()
            return self.process.wait() == -signal.SIGKILL
        draw.choice(found[kind]).kill()
        if kind == "worker":
            return True
        with suppress(subprocess.TimeoutExpired):
            return self.process.wait(PATIENCE) > 0
        self.process.kill()
        return False

    def left(self) -> int:
        """How many of its processes are still there some seconds after its end."""
        end = time.monotonic() + GONE_WITHIN
        while (alive := [each for each in self.cluster if is_alive(each)]) and time.monotonic() < end:
            time.sleep(0.2)
        return len(alive)


def under_kills(out: Path, units: int, seconds: float, kills: Counter[str], draw: random.Random) -> bool:
    """Hit what `kills` lists in random order, each while units run; start the driver again whenever it has ended."""
    store, order = open_store(out / "killed"), draw.sample(list(kills.elements()), kills.total())
    start, driver, starts, left, as_due = time.monotonic(), Driver(out / "killed", units, seconds), 1, 0, 0
    try:
        for kind in order:
            goal = len(store.unit_ids()) + STARTED
            while len(store.unit_ids()) < goal and driver.process.poll() is None:
                driver.look()
                time.sleep(0.1)
            time.sleep(draw.uniform(0, seconds))
            if driver.process.poll() is not None or len(store.unit_ids()) > units - 2 * STARTED:
                raise typer.BadParameter(f"{units} are too few for so many kills", param_hint="--units")
            as_due += driver.hit(kind, draw)
            if driver.process.poll() is not None:
                left += driver.left()
                driver, starts = Driver(out / "killed", units, seconds), starts + 1
        while driver.process.wait() != 0:
            driver, starts = Driver(out / "killed", units, seconds), starts + 1
        left += driver.left()
    finally:
        driver.process.kill()
    took = time.monotonic() - start
    calm = open_store(out / "undisturbed")
    run(noise_units(units), NoiseMaker(), calm)
    equal = same_records(noise_units(units), store, calm)
    records, files = (len(list((out / "killed" / name).iterdir())) for name in ("units", "files"))
    counts = {"ended_as_due": as_due, "starts": starts, "processes_left": left}
    show("Kills", **kills, **counts, units=units, records=records, files=files, equal=equal, seconds=took)
    return equal == records == files == units and as_due == kills.total() and not left


def with_a_leaving_node(out: Path, units: int, seconds: float) -> bool:
    """A cluster of two nodes, one of which leaves while its worker is at work."""
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "object_store_memory": 80 * 2**20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=node)
    second = cluster.add_node(**{name: value for name, value in node.items() if name != "include_dashboard"})
    store, calm, workers = open_store(out / "node"), open_store(out / "undisturbed-node"), set()

    class Leave(Progress):
        finished = 0

        def finish(self, worker: int, record: Record) -> None:
            self.finished += 1
            workers.add(record.worker)
            if self.finished == units // 3:
                cluster.remove_node(second, allow_graceful=False)

    start = time.monotonic()
    try:
        with OnRay(cluster.address, workers=2) as executor:
            run(noise_units(units), NoiseMaker(seconds), store, executor, progress=Leave())
    finally:
        cluster.shutdown()
    took = time.monotonic() - start
    run(noise_units(units), NoiseMaker(), calm)
    equal = same_records(noise_units(units), store, calm)
    show("A node leaves", units=units, records=len(store.unit_ids()), equal=equal, workers=len(workers), seconds=took)
    return equal == len(store.unit_ids()) == units


class Stopwatch(Progress):
    """Seconds from the first unit's beginning to the last one's end."""

    first: float | None = None
    last = 0.0

    def begin(self, worker: int, unit: Unit) -> None:
        self.first = time.perf_counter() if self.first is None else self.first

    def finish(self, worker: int, record: Record) -> None:
        self.last = time.perf_counter()


def overhead(out: Path, units: int, seconds: float) -> None:
    """Time per unit with one worker, against this process. Both count from the first unit: not the start of Ray."""
    found = {}

    def measure(name: str, executor: Executor | None) -> None:
        watch = Stopwatch()
        run(noise_units(units), NoiseMaker(seconds), open_store(out / f"overhead-{name}"), executor, progress=watch)
        found[name] = (watch.last - (watch.first or 0.0)) / units

    measure("here", None)
    with OnRay(workers=1) as executor:
        measure("ray", executor)
    here, ray = found["here"], found["ray"]
    show("Seconds a unit", units=units, in_process=f"{here:.4f}", ray=f"{ray:.4f}", more=f"{ray / here - 1:.2%}")


def very_many(out: Path, units: int) -> None:
    """Units that do nothing: to make them, to plan them again with half of them gone, to resume, to count."""
    out.mkdir(parents=True, exist_ok=True)
    script = Path(__file__)
    cells: dict[str, Any] = {"units": units}
    for step in ("make", "plan", "status"):
        command = [sys.executable, str(script), "many", str(out / "many"), str(units), step]
        took, memory = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        cells |= {f"{step}_s": took, f"{step}_MiB": round(memory)}
    show("Very many units", **cells)


@app.command()
def many(out: Path, units: int, step: str) -> None:
    """One step of `very_many`, in a process of its own; prints seconds and the peak of its memory in MiB."""
    store, start = open_store(out), time.perf_counter()
    if step == "status":
        tally((record for _, record, _ in store.survey([u.id for u in noise_units(units)]) if record), units)
    else:
        run(noise_units(units), EmptyMaker(), store)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sys.stdout.write(json.dumps([time.perf_counter() - start, memory]))


class EmptyMaker(NoiseMaker):
    """Does nothing."""

    def make(self, unit: Unit) -> Any:
        from galaxydit.pipelines.runs import Output

        return Output(None)


@app.command()
def check(
    out: Annotated[Path, typer.Option(help="A new folder.")],
    units: Annotated[int, typer.Option(min=4)] = 400,
    seconds: Annotated[float, typer.Option(min=0, help="That a unit takes.")] = 1.0,
    overhead_units: Annotated[int, typer.Option(min=1)] = 10,
    many_units: Annotated[int, typer.Option("--many", min=1)] = 100_000,
    seed: Annotated[int, typer.Option(help="Draws moments and victims.")] = 0,
    parts: Annotated[str, typer.Option(help="With commas.")] = ",".join(PARTS),
) -> None:
    """Kill, compare, measure, tell."""
    os.environ |= {"OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    out.mkdir(parents=True)
    holds = True
    if "kills" in parts:
        holds &= under_kills(out, units, seconds, KILLS, random.Random(seed))
    if "node" in parts:
        holds &= with_a_leaving_node(out, min(128, units), seconds)
    if "overhead" in parts:
        overhead(out, overhead_units, 2.0)
    if "many" in parts:
        very_many(out, many_units)
    if not holds:
        raise typer.Exit(1)


if __name__ == "__main__":
    app()
