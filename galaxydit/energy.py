"""Joules by the energy counters of devices, read by zeus (extra "energy"); other work on a device counts, too.

"Without a counter" means that `meter_of` gives no meter. The owner of a reading is the pipeline that it was taken for.
"""

import math
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from galaxydit.foreign_text import logger_of

logger = logger_of(__name__)
STILL = 0.2  # seconds; drivers refresh their counters every 0.1 s or faster, and an idle GPU takes some 10 J/s
TOO_SHORT = "the counter did not move, because the generation took less time than its refresh"
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
    joules: float  # since an unknown moment, the same for all readings of equal `breaks`; nan if unknown
    owners: int  # changes of the owner so far; more between two readings of one owner: another one used the device
    other_processes: bool  # used the device
    breaks: int = 0  # of the counter so far; more between two readings: their difference is unknown


class Meter:
    """The counter of the device `name`: `count` returns joules; `gpu` is zeus's, None for a CPU.

    A counter falls when its driver is loaded again, or when it wraps: zeus adds the range of a RAPL counter that
    wrapped, up to a second late, and NVML tells no range. So the joules across a fall, or across the leap back, are
    unknown.
    """

    def __init__(self, name: str, count: Callable[[], float], gpu: Any = None) -> None:
        self.name, self.failure = name, ""  # text of the newest reading or difference that is unknown
        self._count, self._gpu = count, gpu
        self._latest, self._peak, self._breaks = -math.inf, -math.inf, 0  # of all readings that did not fail
        self._lock = threading.Lock()
        self._owner: object = None
        self._owners = 0

    def read(self, owner: object = None) -> Reading:
        """A reading now; the caller synchronises the device first. Never raises, but gives nan and sets `failure`.
        `owner` identifies the pipeline that reads.
        """
        with self._lock:
            if owner is not None and owner != self._owner:
                self._owner, self._owners = owner, self._owners + 1
            try:
                joules = float(self._count())
                if not math.isfinite(joules):
                    raise ValueError(f"it gives {joules} J")
                is_shared = self._is_shared()
            except Exception as error:  # whatever zeus, NVML and RAPL raise: the video does not depend on its joules
                self._fail(_unreadable(self.name, error))
                return Reading(math.nan, self._owners, False, self._breaks)
            has_leapt_back = self._latest < self._peak <= joules
            if joules < self._latest or has_leapt_back:
                self._breaks += 1
            self._latest, self._peak = joules, max(self._peak, joules)
            return Reading(joules, self._owners, is_shared, self._breaks)

    def between(self, first: Reading, last: Reading, seconds: float) -> float:
        """Joules from one reading to a later one; nan, and `failure` says why, if a reading has none, the counter fell
        between them, or it stood still for `STILL` seconds or longer.
        """
        joules = last.joules - first.joules
        if math.isnan(joules):  # `read` has said why
            return math.nan
        if last.breaks > first.breaks or joules < 0:
            self._fail(f"the counter of {self.name} fell, as after a reload of its driver")
            return math.nan
        if joules == 0 and seconds >= STILL:
            self._fail(f"the counter of {self.name} stood still for {seconds:.2g} s of work")
            return math.nan
        return joules

    def _fail(self, text: str) -> None:
        if text != self.failure:
            logger.warning("joules are missing: %s", text)
        self.failure = text

    def _is_shared(self) -> bool:
        """Whether several processes compute on the device; counted, because their ids differ between containers."""
        handle = getattr(self._gpu, "handle", None)
        if handle is None:
            return False
        import pynvml

        with suppress(pynvml.NVMLError):
            return len(pynvml.nvmlDeviceGetComputeRunningProcesses(handle)) > 1
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
    except ImportError:
        return INSTALL
    try:
        gpu = None if device.type == "cpu" else get_gpus().gpus[device.index or 0]
        if gpu is not None and not gpu.supports_get_total_energy_consumption():
            return f"{device} has no energy counter, which NVIDIA's GPUs have from Volta on"
        cpus = get_cpus().cpus if gpu is None else []

        def count() -> float:
            if gpu is not None:
                return gpu.get_total_energy_consumption() / 1000
            return sum(cpu.get_total_energy_consumption().cpu_mj for cpu in cpus) / 1000

        count()  # raises where there is a counter that cannot be read; RAPL's process starts now, not within a video
        return Meter(str(device), count, gpu)
    except ZeusCPUNoPermissionError:
        return "the CPU's RAPL counter may only be read by root"
    except ZeusCPUInitError:
        return "the machine shows no RAPL counter of its CPU (/sys/class/powercap/intel-rapl)"
    except Exception as error:  # whatever zeus, NVML and RAPL raise
        return _unreadable(str(device), error)


def _unreadable(device: str, error: Exception) -> str:
    return " ".join(f"the counter of {device} cannot be read: {type(error).__name__}: {error}".split())
