"""The latents of one loop as one scheduler hands them on from step to step."""

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from galaxydit.runtime.latents import EARLY, LatentComparison, Returned
from galaxydit.schedulers import counter_of


@dataclass(eq=False)
class Trajectory:
    """The latents that one scheduler hands on from step to step in this loop.

    Attributes:
        steps: how many were told. index: the scheduler's counter before the latest one.
        returned: by the latest `step`; `replaced` by the step before it.
        comparison: of what `step` is given with what it had returned.
    """

    scheduler: Any
    steps: int = 0
    index: int | None = None
    returned: Returned | None = None
    replaced: Returned | None = None
    comparison: LatentComparison = field(default_factory=LatentComparison)

    def enter(self) -> None:
        """A step begins. Cosmos sets the index back and steps again: then the second step replaces the first."""
        index = counter_of(self.scheduler)
        if index is not None and index == self.index and self.steps > 0:
            self.returned = self.replaced
            self.steps -= 1
        self.index = index
        self.replaced = self.returned

    def compare(self, sample: Any) -> Tensor | None:
        """Counts of `LatentComparison.counts` for the latent that `step` is given; None before the first step."""
        if self.returned is None or not isinstance(sample, Tensor):
            return None
        return self.comparison.counts(self.returned, sample, is_early=self.steps < EARLY)

    def leave(self, latent: Tensor, *, is_whole: bool) -> None:
        self.steps += 1
        counter = counter_of(self.scheduler)
        if self.index is None and counter is not None:
            self.index = counter - 1  # it counts from its first step on
        self.returned = Returned(latent, is_whole=is_whole)

    def step_after(self, first: int) -> int:
        """The next step, if `first` was the first one. DDIM and its like keep no counter."""
        return max(first + self.steps, counter_of(self.scheduler) or 0)  # PNDM counts from 0 wherever it begins
