"""Seconds and joules between the moments of one generation, by one clock that stands still while a counter is read."""

import math
import time
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import distributed

from galaxydit.energy import SHARED_GENERATION, SHARED_PROCESS, TOO_SHORT, Energy, Meter, Reading, meter_of

BEGIN = "begin"  # of the pipeline's whole call
FIRST = "first"  # transformer call begins
LAST = "last"  # step has ended
DECODED = "decoded"  # the newest part of the video
END = "end"  # of the pipeline's whole call


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished its queue, so that a clock read afterwards is true."""
    if device.type not in ("cpu", "meta"):
        torch.accelerator.synchronize(device)


def by_rank(group: Any | None, joules: float | None, device: torch.device) -> dict[str, float] | None:
    """Joules by rank ("rank 0") of a process group, or, without a group, by the name of `device` ("cuda:0"); None if
    those of any rank are unknown. `joules` are those of this process; None or nan if unknown. Each rank has to call."""
    if joules is None:
        joules = math.nan
    if group is None:
        return None if math.isnan(joules) else {str(device): joules}
    ranks = torch.zeros(distributed.get_world_size(group), dtype=torch.float32, device=device)
    ranks[distributed.get_rank(group)] = joules
    distributed.all_reduce(ranks, group=group)
    values = ranks.tolist()
    if any(math.isnan(value) for value in values):
        return None
    return {f"rank {rank}": value for rank, value in enumerate(values)}


@dataclass
class Stopwatch:
    """The moments of one generation; joules are None without a counter.

    Attributes:
        device: the device that computes; None reads no counter.
        owner: identifies the pipeline, see `Meter.read`.
        reads_cpu: whether a CPU's counter is read, see `meter_of`.
        text: joules of the text encoders before the first moment; nan if a reading failed.
        devices: joules of denoising, by device or rank; None until `share` and where the joules of a rank are unknown.
        whole: joules from end to end, over all ranks; None where unknown.
    """

    device: torch.device | None
    owner: object = None
    reads_cpu: bool = False
    text: float = 0.0
    devices: dict[str, float] | None = field(default=None, init=False)
    whole: float | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._readings: dict[str, Reading] = {}
        self._paused = 0.0
        self._failure = ""  # why joules of this generation are unknown

    def mark(self, name: str, *, wait: bool = True, read: bool = True) -> None:
        """Note the time of a moment, by default with its joules and after the device has finished its queue."""
        if wait and self.device is not None:
            synchronize(self.device)
        start = time.perf_counter()
        self._seconds[name] = start - self._paused
        if not read:
            return
        meter = self._meter
        if meter is not None:
            self._readings[name] = meter.read(self.owner)
            self._paused += time.perf_counter() - start

    @property
    def _meter(self) -> Meter | None:
        if self.device is None:
            return None
        meter = meter_of(self.device, cpu=self.reads_cpu)
        return meter if isinstance(meter, Meter) else None  # a text says why there is none

    def has(self, name: str) -> bool:
        return name in self._seconds

    def seconds(self, first: str, last: str) -> float | None:
        """Seconds between two moments; None if one of them has not come."""
        if not self.has(first) or not self.has(last):
            return None
        return self._seconds[last] - self._seconds[first]

    def joules(self, first: str, last: str) -> float | None:
        """Joules between two moments; nan where they are unknown (`Meter.between`), None where nothing was read."""
        meter = self._meter
        begin = self._readings.get(first)
        end = self._readings.get(last)
        if meter is None or begin is None or end is None:
            return None
        joules = meter.between(begin, end, self.seconds(first, last) or 0.0)
        if math.isnan(joules):
            self._failure = meter.failure
        return joules

    def _joules_of_work(self, first: str, last: str) -> float | None:
        """`joules`, but nan in place of 0, which short work has between two refreshes of its counter."""
        joules = self.joules(first, last)
        if joules != 0:
            return joules
        self._failure = TOO_SHORT
        return math.nan

    def share(self, group: Any | None) -> None:
        """Compute `devices` and `whole`. Each rank of the process `group` that shares the video has to call this."""
        if self.device is None:
            return
        self._failure = ""  # that of a reading which a later one replaced
        begin = BEGIN if BEGIN in self._readings else FIRST
        whole = self._joules_of_work(begin, END)
        if whole is not None:
            whole += self.text
        self.devices = by_rank(group, self._joules_of_work(FIRST, LAST), self.device)
        ranks = by_rank(group, whole, self.device)
        self.whole = None if ranks is None else sum(ranks.values())

    def energy(self) -> Energy | None:
        """The joules up to the newest moment; None without a counter."""
        readings = list(self._readings.values())
        meter = self._meter
        if not readings or meter is None:
            return None
        denoise = None
        if self.devices is not None:
            denoise = sum(self.devices.values())
        is_shared = any(reading.other_processes for reading in readings)
        note = ""
        if is_shared:
            note = SHARED_PROCESS
        if max(reading.owners for reading in readings) > readings[0].owners:
            note = SHARED_GENERATION
        # The reason for joules that are unknown says more than who shared the counter.
        if math.isnan(self.text) or any(math.isnan(reading.joules) for reading in readings):
            note = meter.failure
        if self._failure:
            note = self._failure
        return Energy(denoise, self.whole, self.devices or {}, note, is_shared)
