"""Clock, host synchronizations and memory of a device."""

import platform
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
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
    """Time marks in the device's stream, so that measuring adds no synchronization."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._marks: list[Any] = []
        self._now = time.thread_time if clock_name(device) == "thread time" else time.perf_counter

    def mark(self) -> None:
        """Add a mark after the work queued so far."""
        if self.device.type == "cuda":
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._marks.append(event)
        else:
            self._marks.append(self._now())

    def milliseconds(self) -> list[float]:
        """Milliseconds between consecutive marks; waits for the device."""
        synchronize(self.device)
        pairs = zip(self._marks, self._marks[1:], strict=False)
        if self.device.type == "cuda":
            return [before.elapsed_time(after) for before, after in pairs]
        return [1000 * (after - before) for before, after in pairs]


class SyncCounter:
    """Counts in `count` how often the host waits for the device; None on a CPU."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.count: int | None = None

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Count the synchronizing calls that PyTorch reports (torch.cuda.set_sync_debug_mode)."""
        if self.device.type != "cuda":
            yield
            return
        before = torch.cuda.get_sync_debug_mode()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                yield
            finally:
                torch.cuda.set_sync_debug_mode(before)
        self.count = sum("synchroniz" in str(warning.message) for warning in caught)


def device_name(device: torch.device) -> str:
    """The device's product name."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
