"""Joules by the energy counters of devices, read by zeus (extra "energy"); other work on a device counts, too.

"Without a counter" means that `meter_of` gives no meter. The owner of a reading is the pipeline that it was taken for.
"""

import logging
import math
import threading
import time
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

logger = logging.getLogger(__name__)
INSTALL = "zeus is not installed: pip install 'galaxydit[energy]'"
SHARED_PROCESS = "another process uses the device, so its joules count too"
SHARED_GENERATION = "another generation ran on the device at the same time, so its joules count too"


@dataclass(frozen=True)
class Energy:
    denoise: float | None  # from the first transformer call to the end of the last, over all devices and ranks
    # with text encoders and decoding; None where nothing or another loop decoded, and, without `pipelines.generate`, in
    # the report of several ranks, because any of them may decode
    end_to_end: float | None
    devices: Mapping[str, float]  # `denoise` by device ("cuda:0"), or by rank ("rank 0") that shares the video
    note: str = ""  # on other work whose joules are included, or on a reading that failed
    is_shared: bool = False  # another process used a device at a reading


@dataclass(frozen=True)
class Reading:
    joules: float  # since the meter was opened
    number: int  # of this reading, from 1
    other_owner: int  # number of the newest reading at which the owner changed; if it rises, two used the device
    other_processes: bool  # used the device
    failed: int = 0  # number of the newest reading that failed, perhaps this one; 0 if none has
    failure: str = ""  # text of that failure
    seconds: float = 0.0  # that the reading took


class Meter:
    """The counter of the device `name`, read through windows of a `zeus.monitor.ZeusMonitor`, without gaps."""

    WINDOW = "galaxydit"

    def __init__(self, monitor: Any, name: str) -> None:
        self.name = name
        self._monitor = monitor
        self._lock = threading.Lock()
        self._joules, self._number, self._other_owner = 0.0, 0, 0
        self._owner: object = None
        self._failed, self._failure = 0, ""
        self._begin()

    def read(self, owner: object = None) -> Reading:
        """The joules since the meter was opened; the caller synchronises the device first. Never raises, but says in
        `Reading.failed` that it failed. `owner` identifies the pipeline that reads.
        """
        start = time.perf_counter()
        with self._lock:
            self._number += 1
            is_shared = False
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # zeus warns of windows below the counter's period, which read 0
                    window = self._monitor.end_window(self.WINDOW, sync_execution=False)
                self._begin()
                self._joules += window.total_energy + sum((window.cpu_energy or {}).values())
                is_shared = self._is_shared()
            except Exception as error:  # whatever zeus, NVML and RAPL raise: the video does not depend on its joules
                text = _unreadable(self.name, error)
                if text != self._failure:
                    logger.warning("joules are missing: %s", text)
                self._failed, self._failure = self._number, text
                with suppress(Exception):
                    self._begin()
            if owner is not None and owner != self._owner:
                self._owner, self._other_owner = owner, self._number
            seconds = time.perf_counter() - start
            return Reading(
                self._joules, self._number, self._other_owner, is_shared, self._failed, self._failure, seconds
            )

    def _begin(self) -> None:
        self._monitor.begin_window(self.WINDOW, sync_execution=False, restart=True)

    def _is_shared(self) -> bool:
        """Whether several processes compute on the device; counted, because their ids differ between containers."""
        handles = [getattr(self._monitor.gpus.gpus[index], "handle", None) for index in self._monitor.gpu_indices]
        if not handles or None in handles:
            return False
        import pynvml

        with suppress(pynvml.NVMLError):
            return any(len(pynvml.nvmlDeviceGetComputeRunningProcesses(handle)) > 1 for handle in handles)
        return False


def meter_of(device: torch.device, *, cpu: bool = False) -> Meter | str:
    """The meter of a device, or the reason why there is none.

    `cpu` allows a meter of a CPU `device` (RAPL); without it, there is none. For RAPL, zeus starts a process that
    imports the main module again, which the commands support, but perhaps not the scripts of users.
    """
    if device == torch.device("cuda"):
        device = torch.device("cuda", torch.cuda.current_device())
    return _meter(str(device), cpu)


@cache
def _meter(device: str, cpu: bool) -> Meter | str:
    meter = _open(torch.device(device), cpu)
    if isinstance(meter, str):
        logger.info("no joules are measured: %s", meter)
    return meter


def _open(device: torch.device, cpu: bool) -> Meter | str:
    if device.type not in ("cuda", "cpu"):
        return f"no counter is read for {device.type}"
    if device.type == "cpu" and not cpu:
        return "the CPU's counter is read by commands alone"
    try:
        from zeus.device import get_cpus, get_gpus
        from zeus.device.cpu.common import ZeusCPUInitError, ZeusCPUNoPermissionError
        from zeus.monitor import ZeusMonitor
    except ImportError:
        return INSTALL
    try:
        if device.type == "cpu":
            get_cpus()  # raises the errors that ZeusMonitor would pass over
            return Meter(ZeusMonitor(gpu_indices=[]), "cpu")
        index = device.index or 0
        if not get_gpus().supports_get_total_energy_consumption(index):
            return f"{device} has no energy counter, which NVIDIA's GPUs have from Volta on"
        return Meter(ZeusMonitor(gpu_indices=[index], cpu_indices=[]), str(device))
    except ZeusCPUNoPermissionError:
        return "the CPU's RAPL counter may only be read by root"
    except ZeusCPUInitError:
        return "the machine shows no RAPL counter of its CPU (/sys/class/powercap/intel-rapl)"
    except Exception as error:  # whatever zeus, NVML and RAPL raise
        return _unreadable(str(device), error)


def _unreadable(device: str, error: Exception) -> str:
    return " ".join(f"the counter of {device} cannot be read: {type(error).__name__}: {error}".split())


def read(device: torch.device, owner: object = None, *, cpu: bool = False) -> Reading | None:
    """The reading of a device's counter now, see `Meter.read`; None without a counter."""
    meter = meter_of(device, cpu=cpu)
    return meter.read(owner) if isinstance(meter, Meter) else None


def difference(before: Reading | None, after: Reading | None) -> float | None:
    """Joules between two readings; nan if a reading from the first to the last failed, None without a counter."""
    if before is None or after is None:
        return None
    return math.nan if after.failed >= before.number else after.joules - before.joules


def note_between(before: Reading, after: Reading) -> str:
    """Text on a failed reading or on other known work on the device between two readings of one pipeline."""
    if after.failed >= before.number:
        return after.failure
    if after.other_owner > before.number:
        return SHARED_GENERATION
    return SHARED_PROCESS if before.other_processes or after.other_processes else ""
