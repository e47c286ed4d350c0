"""Clock, host synchronizations and memory of a device."""

import platform
import time
import warnings
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from galaxydit.runtime.generation import synchronize


def clock_name(device: torch.device) -> str:
    """What `StepClock` reads: CUDA events, or on a CPU the time of the thread, which other processes do not lengthen,
    if torch uses one thread, else the wall clock.
    """
    if device.type == "cuda":
        return "CUDA events"
    return "thread time" if torch.get_num_threads() == 1 else "wall clock"


class StepClock:
    """Time marks in the device's stream, so that measuring adds no synchronization. The first is set at once."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._marks: list[Any] = []
        self._now = time.thread_time if clock_name(device) == "thread time" else time.perf_counter
        self.mark()

    def mark(self) -> None:
        """Add a mark after the work queued so far."""
        if self.device.type == "cuda":
            event = torch.cuda.Event(enable_timing=True)
            event.record(torch.cuda.current_stream(self.device))
            self._marks.append(event)
        else:
            self._marks.append(self._now())

    def milliseconds(self) -> list[float]:
        """Milliseconds between consecutive marks; waits for the device."""
        synchronize(self.device)
        if self.device.type == "cuda":
            return [before.elapsed_time(after) for before, after in pairwise(self._marks)]
        return [1000 * (after - before) for before, after in pairwise(self._marks)]


def seconds_of(work: Callable[[], object], device: torch.device) -> float:
    """Seconds that the work takes on the device; waits for it."""
    clock = StepClock(device)
    work()
    clock.mark()
    return sum(clock.milliseconds()) / 1000


def host_waits(work: Callable[[], object]) -> int:
    """How often the host waits for a CUDA device during the work, as PyTorch reports it
    (torch.cuda.set_sync_debug_mode).
    """
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            work()
        finally:
            torch.cuda.set_sync_debug_mode(before)
    return sum("synchroniz" in str(warning.message) for warning in caught)


def device_name(device: torch.device) -> str:
    """The device's product name."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
