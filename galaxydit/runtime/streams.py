"""Output streams of a transformer, such as picture and sound: each has the noise levels of the scheduler that steps it.

Outputs are packed into one tensor `(rows, elements)`; a `Part` is what one stream has of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from galaxydit.extrapolation import CachedStep
from galaxydit.runtime.call import StepInfo
from galaxydit.runtime.scheduler_response import scheduler_response
from galaxydit.schedulers import sigma_at, sigmas_of


class Clock:
    """The noise levels of one scheduler in one loop, and how its final latent responds to each prediction.

    Attributes:
        first: the first step that runs.
        sigmas: noise level of each step, in [0, 1]; None where unknown.
    """

    def __init__(self, scheduler: Any | None, steps: int, first: int) -> None:
        self.scheduler = scheduler
        self.first = first
        self.sigmas = sigmas_of(scheduler, steps)

    @cached_property
    def response(self) -> tuple[float, ...] | None:
        """`scheduler_response`, measured when it is first read; None without sigmas."""
        if self.sigmas is None:
            return None
        return scheduler_response(self.scheduler, self.sigmas, self.first)

    def sigma(self, step: int) -> float:
        """Noise level of a step in [0, 1]."""
        return sigma_at(None, self.scheduler, step, 0.0)


def clocks_of(schedulers: Sequence[Any | None], steps: int, first: int) -> tuple[Clock, ...]:
    """One clock for each stream; a single one where all streams have equal noise levels."""
    main, *others = [Clock(scheduler, steps, first) for scheduler in schedulers]
    if all(other.scheduler is main.scheduler or other.sigmas == main.sigmas for other in others):
        return (main,)
    return (main, *others)


@dataclass(frozen=True)
class Part:
    """What one stream has of a packed tensor.

    Attributes:
        stream: its index. clock: None for the stream of the call's own noise level.
        columns: of the packed tensor; None if it holds this stream alone.
    """

    stream: int
    clock: Clock | None = None
    columns: slice | None = None

    def of(self, tensor: Tensor) -> Tensor:
        if self.columns is None:
            return tensor
        return tensor[:, self.columns]

    def history(self, steps: tuple[CachedStep, ...]) -> tuple[CachedStep, ...]:
        """The full steps with this stream's values and noise levels."""
        if self.columns is None:
            return steps
        parts = []
        for step in steps:
            part = step._replace(tensor=self.of(step.tensor))
            if self.clock is not None:
                part = part._replace(sigma=self.clock.sigma(step.step))
            parts.append(part)
        return tuple(parts)

    def sigma(self, info: StepInfo) -> float:
        if self.clock is None:
            return info.sigma
        return self.clock.sigma(info.step)


WHOLE = (Part(0),)
"""The parts of a tensor with one stream, or with several that have equal noise levels."""


def parts_of(clocks: Sequence[Clock], shapes: Sequence[torch.Size]) -> tuple[Part, ...]:
    """The parts of a packed tensor of outputs of these `shapes`, each of another clock."""
    if len(clocks) == 1 or len(shapes) < 2:
        return WHOLE  # with equal noise levels, one prediction holds for all columns
    parts = []
    start = 0
    for index, (clock, shape) in enumerate(zip(clocks, shapes, strict=True)):
        end = start + shape[1:].numel()
        own_clock = clock if index > 0 else None  # the first stream has the call's noise level
        parts.append(Part(index, own_clock, slice(start, end)))
        start = end
    return tuple(parts)


def join(tensors: Sequence[Tensor]) -> Tensor:
    """The packed tensor of these parts."""
    return tensors[0] if len(tensors) == 1 else torch.cat(list(tensors), dim=1)
