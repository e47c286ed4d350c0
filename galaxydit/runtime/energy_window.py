"""The readings of one generation's energy counter, and the joules between them."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import distributed

from galaxydit.energy import Energy, Reading, difference, note_between, read


def by_rank(group: Any | None, joules: float | None, device: torch.device) -> dict[str, float] | None:
    """Joules by rank ("rank 0") of a process group, or, without a group, by the name of `device` ("cuda:0"); None if
    those of any rank are unknown. `joules` are those of this process; None or nan if unknown. Each rank has to call."""
    joules = math.nan if joules is None else joules
    if group is None:
        return None if math.isnan(joules) else {str(device): joules}
    ranks = torch.zeros(distributed.get_world_size(group), dtype=torch.float32, device=device)
    ranks[distributed.get_rank(group)] = joules
    distributed.all_reduce(ranks, group=group)
    values = ranks.tolist()
    return None if any(value != value for value in values) else {f"rank {n}": joules for n, joules in enumerate(values)}


@dataclass
class EnergyWindow:
    """The readings of one generation; each is None until it is taken, and without a counter (`meter_of`).

    Attributes:
        device: the device that computes the transformer.
        owner: identifies the pipeline, see `Meter.read`.
        reads_cpu: whether a CPU's counter is read, see `meter_of`.
        text: joules of the text encoders before the first reading; nan if a reading failed.
        before, after: readings around the pipeline's whole call; `before` is None where only `text` is known.
        first, last: readings at the first transformer call and after the last step.
        devices: joules of denoising, by device or rank; None until `last` and where the joules of a rank are unknown.
        whole: joules from end to end, over all ranks; None where unknown.
        paused: seconds that readings took between the first transformer call and the end of decoding.
    """

    device: torch.device
    owner: object = None
    reads_cpu: bool = False
    text: float = 0.0
    before: Reading | None = None
    first: Reading | None = None
    last: Reading | None = None
    after: Reading | None = None
    devices: dict[str, float] | None = None
    whole: float | None = None
    paused: float = 0.0

    @classmethod
    def begin(cls, device: torch.device, owner: object, text: float) -> "EnergyWindow":
        """The window of a generation whose first transformer call starts now. `text`: joules of its text encoders."""
        return cls(device, owner, text=text, first=read(device, owner))

    def read(self) -> Reading | None:
        """A reading now; None without a counter. The caller synchronises the device first."""
        return read(self.device, self.owner, cpu=self.reads_cpu)

    def read_last(self) -> None:
        self.last = self.read()
        self.paused += 0.0 if self.last is None else self.last.seconds

    def end_denoising(self, group: Any | None) -> None:
        """Take the reading `last`, and compute `devices`. Each rank of the process `group` has to call this."""
        self.read_last()
        self.share(group)

    def end_decoding(self) -> None:
        """Take the reading `after`, and compute `whole`; for a video that one process computes."""
        self.after = self.read()
        self.share(None)

    def share(self, group: Any | None) -> None:
        """Compute `devices` and `whole`. Each rank of the process `group` that shares the video has to call this."""
        whole = difference(self.before or self.first, self.after)
        self.devices = by_rank(group, difference(self.first, self.last), self.device)
        ranks = by_rank(group, None if whole is None else whole + self.text, self.device)
        self.whole = None if ranks is None else sum(ranks.values())

    @property
    def _taken(self) -> list[Reading]:
        return [one for one in (self.before, self.first, self.last, self.after) if one is not None]

    @property
    def note(self) -> str:
        """Text on a failed reading or on other work on the device; empty if none is known."""
        taken = self._taken
        notes = [taken[0].failure if math.isnan(self.text) else "", *(note_between(taken[0], one) for one in taken)]
        return next(filter(None, notes), "")

    def energy(self) -> Energy | None:
        """The joules up to the newest reading; None without a counter."""
        if not self._taken:
            return None
        denoise = None if self.devices is None else sum(self.devices.values())
        is_shared = any(one.other_processes for one in self._taken)
        return Energy(denoise, self.whole, self.devices or {}, self.note, is_shared)
