"""Real drivers of real clusters under real signals: each ends with a word, leaves no process and can be resumed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import psutil
import pytest

from galaxydit.pipelines.runs import Outcome, Store, run

pytest.importorskip("ray", reason="Ray is not installed: pip install 'galaxydit[ray]'")

UNITS = 400
SECONDS = 0.3  # that a unit takes
# Seconds for the cluster of a killed driver to end. Without the guard, Ray's agents outlive it by 61.
GONE_WITHIN = 50.0


def wait_for(holds: Callable[[], object], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


class Driver:
    """A process that makes units on a cluster of its own, with everything that belongs to the cluster."""

    def __init__(self, folder: Path, makers: ModuleType) -> None:
        self.makers = makers
        self.store = Store(folder / "run")
        script = Path(__file__).with_name("acceptance.py")
        command = [sys.executable, str(script), "drive", self.store.root, str(UNITS), "1", str(SECONDS)]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
            start_new_session=True,  # a process group, as a batch system makes
        )

    def wait_until_units_run(self) -> "Driver":
        wait_for(lambda: self.store.unit_ids() or self.process.poll() is not None)
        self.cluster = psutil.Process(self.process.pid).children(recursive=True)
        return self

    def part(self, text: str) -> psutil.Process:
        """The process of the cluster with this text in its command line."""
        return next(process for process in self.cluster if text in " ".join(process.cmdline()))

    def end(self) -> tuple[int, str]:
        """Exit code and output, once the process has ended by itself and its cluster with it."""
        output, _ = self.process.communicate(timeout=90)
        wait_for(lambda: not self.left())
        return self.process.returncode, output

    def left(self) -> list[psutil.Process]:
        """Processes of the cluster that still run, also those that started after `wait_until_units_run`."""
        return [process for process in psutil.process_iter() if self.owns(process) and self.makers.is_alive(process)]

    def owns(self, process: psutil.Process) -> bool:
        """Whether the process descends from the driver, which began a session of the operating system."""
        try:
            return process in self.cluster or os.getsid(process.pid) == self.process.pid
        except ProcessLookupError:
            return False


@pytest.fixture(scope="module")
def drivers(tmp_path_factory: pytest.TempPathFactory, makers: ModuleType) -> Iterator[dict[str, Driver]]:
    """Three drivers, side by side to save time, each with what was done to it while it made units."""
    drivers = {
        name: Driver(tmp_path_factory.mktemp("driver"), makers) for name in ("killed node", "ended job", "killed")
    }
    try:
        drivers["killed node"].wait_until_units_run().part("/raylet/raylet ").kill()
        os.killpg(drivers["ended job"].wait_until_units_run().process.pid, signal.SIGTERM)
        drivers["killed"].wait_until_units_run().process.kill()
        yield drivers
    finally:
        for driver in drivers.values():
            driver.process.kill()


def resume(driver: Driver) -> Outcome:
    """The outcome of the same units in this process; the first ones must be there already."""
    before = len(driver.store.unit_ids())
    assert 0 < before < UNITS, "the signal did not come while units ran"
    maker = driver.makers.NoiseMaker()
    outcome = run(driver.makers.noise_units(UNITS), maker, driver.store)
    assert len(maker.made) == UNITS - before
    return outcome


def test_a_killed_driver_leaves_no_process_of_ray_after_a_minute(drivers: dict[str, Driver]) -> None:
    """The first test, because the wait must begin when the driver is killed."""
    wait_for(lambda: not drivers["killed"].left(), GONE_WITHIN)
    assert drivers["killed"].end()[0] == -signal.SIGKILL
    assert resume(drivers["killed"]) == Outcome(UNITS, 0)


def test_a_killed_node_ends_the_run_with_its_reason(drivers: dict[str, Driver]) -> None:
    code, output = drivers["killed node"].end()
    assert code not in (0, -signal.SIGABRT)
    assert "this machine's node of the Ray cluster (raylet) has ended" in output
    assert f"of {UNITS} units are done and stay done" in output
    assert resume(drivers["killed node"]) == Outcome(UNITS, 0)


def test_a_batch_system_that_ends_a_job_is_told_how_far_it_is(drivers: dict[str, Driver]) -> None:
    code, output = drivers["ended job"].end()
    assert code == 128 + signal.SIGTERM
    assert f"of {UNITS} done; run the same command again to continue" in output
    assert "*** SIGTERM" not in output
    assert resume(drivers["ended job"]) == Outcome(UNITS, 0)
