"""Clock and product name of a device."""

import platform
import re
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

THREAD_TIME = "thread time"  # of one thread, which other processes do not lengthen


def clock_name(device: torch.device) -> str:
    """Name of the clock: "CUDA events" on a GPU; on a CPU "thread time" with one thread, else "wall clock"."""
    if device.type == "cuda":
        return "CUDA events"
    return THREAD_TIME if torch.get_num_threads() == 1 else "wall clock"  # which other processes lengthen


class StepClock:
    """Measures the milliseconds between marks, the first set by the constructor; on a GPU marks do not wait."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._marks: list[Any] = []
        self.mark()

    def mark(self) -> None:
        """Set a mark after the work that has been queued so far."""
        if self.device.type == "cuda":
            event = torch.cuda.Event(enable_timing=True)
            event.record(torch.cuda.current_stream(self.device))
            self._marks.append(event)
        else:
            self._marks.append(time.thread_time() if torch.get_num_threads() == 1 else time.perf_counter())

    def milliseconds(self) -> list[float]:
        """Between consecutive marks; waits for the device."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
            return [before.elapsed_time(after) for before, after in pairwise(self._marks)]
        return [1000 * (after - before) for before, after in pairwise(self._marks)]


def product_name(device: torch.device) -> str:
    """Such as "NVIDIA H200" or "AMD EPYC 9654"."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    cpuinfo = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*: (.+)", cpuinfo.read_text(encoding="utf-8")) if cpuinfo.exists() else []
    return names[0] if names else platform.processor() or platform.machine()
