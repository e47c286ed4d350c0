"""Whether the calls of a window continue its schedulers' trajectories; read later, so that the host does not wait."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

import torch
from torch import Tensor

from galaxydit.context_parallel import sum_over
from galaxydit.runtime.known_value import KnownValue
from galaxydit.runtime.latents import HostCopy, LatentComparison
from galaxydit.runtime.scheduler_trajectory import Trajectory


class Latent(Enum):
    """How a call's latent relates to what `step` returned: as expected, of unknown relation, or another one."""

    EXPECTED, UNKNOWN, BROKEN = range(3)


class Counts(NamedTuple):
    """Values of all inputs of a call that were compared, and that are equal; those compared of the input with the
    fewest. A single input has no third number."""

    compared: int
    equal: int
    fewest: int | None = None

    @property
    def differ(self) -> bool:
        return self.equal < self.compared

    @property
    def are_known(self) -> bool:
        """Whether values of every input were compared."""
        return self.compared > 0 and self.fewest != 0


@dataclass(eq=False)
class LatentCheck:
    """Compares the inputs of one window's calls with what schedulers returned.

    Attributes:
        comparisons: by identity of the scheduler.
        unread: counts of comparisons that nobody has read.
        compared: the input that was compared in this step; branches mostly get one tensor.
        latent: by the latest comparison that was read; it had values to compare if `is_comparable`.
    """

    comparisons: dict[int, LatentComparison] = field(default_factory=dict)
    unread: list[HostCopy] = field(default_factory=list)
    compared: KnownValue | None = None
    latent: Latent = Latent.EXPECTED
    is_comparable: bool = False

    def compare(
        self,
        latents: Sequence[Tensor],
        trajectories: Sequence[Sequence[Trajectory]],
        group: Any | None,
        *,
        is_early: bool,
    ) -> None:
        """Compare each input with the latents of its trajectories; the host does not wait. `group` is the process group
        that shares the tokens."""
        if self.compared is not None and self.compared.is_same_object(latents[0]):
            return
        of_inputs = []
        for latent, of_latent in zip(latents, trajectories, strict=True):
            counts = self._counts(latent, of_latent, is_early=is_early)
            if counts is not None:
                of_inputs.append(counts)
        # Before the first step there is nothing to compare with.
        if len(of_inputs) < len(latents):
            return
        self.compared = KnownValue(latents[0])
        together = of_inputs[0]
        if len(of_inputs) > 1:
            stacked = torch.stack(of_inputs)
            fewest = stacked[:, 0].amin(0, keepdim=True)
            together = torch.cat((stacked.sum(0), fewest))
        # Each rank has a part of the tokens, and so of the positions.
        self.unread.append(HostCopy(sum_over(group, together)))

    def _counts(self, latent: Tensor, trajectories: Sequence[Trajectory], *, is_early: bool) -> Tensor | None:
        """Compared and equal values of one input, `(2,)`, on the device; None before its schedulers have stepped."""
        counts = []
        for trajectory in trajectories:
            if trajectory.returned is not None:
                comparison = self.comparisons.setdefault(id(trajectory.scheduler), LatentComparison())
                counts.append(comparison.counts(trajectory.returned, latent, is_early=is_early))
        if len(counts) > 1:
            return torch.stack(counts).sum(0)
        return counts[0] if counts else None

    def read(self) -> tuple[bool, Latent]:
        """Whether an earlier call had another latent, and the relation of the latest call's; the host waits for it."""
        if not self.unread:
            return False, self.latent
        # One stacked tensor, because each read may wait for the device.
        rows = torch.stack([copy.tensor() for copy in self.unread]).tolist()
        self.unread.clear()
        *before, latest = [Counts(*row) for row in rows]
        self.is_comparable = latest.are_known
        if latest.differ:
            self.latent = Latent.BROKEN
        elif latest.are_known:
            self.latent = Latent.EXPECTED
        else:
            self.latent = Latent.UNKNOWN
        return any(counts.differ for counts in before), self.latent
