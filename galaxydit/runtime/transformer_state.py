"""What is kept of one transformer between the calls of one trajectory: full steps to reuse, decisions, conditions."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from galaxydit.extrapolation import CachedStep
from galaxydit.policies.policy import Controller, Decision
from galaxydit.runtime.identity import KnownValue


class HostCopy:
    """A small tensor's copy in host memory, which the device makes when it reaches it."""

    def __init__(self, tensor: Tensor) -> None:
        self._copied: torch.cuda.Event | None = None
        self._tensor = tensor
        if tensor.is_cuda:
            self._tensor = tensor.to("cpu", non_blocking=True)  # into pinned memory
            self._copied = torch.cuda.Event()
            self._copied.record(torch.cuda.current_stream(tensor.device))

    def tensor(self) -> Tensor:
        """The copy; waits until it is made. On a device other than CUDA's, reading it waits for the queue."""
        if self._copied is not None:
            self._copied.synchronize()
        return self._tensor


@dataclass
class TransformerState:
    """State of one transformer in one trajectory, by branch or decision scope, and by index of the sample.

    Attributes:
        samples, was_guided: 0 until a call is divided into samples; None where the pipeline does not say if it guides.
        rows, conditions, shapes: the last call's batch size and other arguments; the last full step's output shapes.
        history, missed: cached full steps, oldest first, and the steps reused since the last one.
        errors: relative error of a prediction at the last full step, on the device, until the next decision reads it.
        slope_errors: step, key, and squared errors at order 1 and 0, of full steps not judged yet.
    """

    samples: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    shapes: dict[str, tuple[torch.Size, ...]] = field(default_factory=dict)
    history: dict[tuple[str, int], tuple[CachedStep, ...]] = field(default_factory=dict)
    missed: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    proxies: dict[str, Tensor] = field(default_factory=dict)
    controllers: dict[tuple[str, int], Controller] = field(default_factory=dict)
    decisions: dict[str, tuple[Decision, ...]] = field(default_factory=dict)
    errors: dict[tuple[str, int], Tensor] = field(default_factory=dict)
    conditions: dict[str, dict[str, KnownValue]] = field(default_factory=dict)
    was_guided: bool | None = None
    slope_errors: list[tuple[int, tuple[str, int], HostCopy]] = field(default_factory=list)
    slope_failures: dict[tuple[str, int], tuple[bool, ...]] = field(default_factory=dict)

    def keep_only(self, branches: set[str]) -> None:
        """Drop other branches, whose full steps are too old, and the decisions of the step before."""
        self.decisions.clear()
        if not branches:
            self.proxies.clear()
        self.history = {key: steps for key, steps in self.history.items() if key[0] in branches}
        self.conditions = {name: known for name, known in self.conditions.items() if name in branches}

    def forget(self, step: int) -> None:
        """Drop the full steps before `step`, because a condition changed or the latent does not continue."""
        kept = {key: tuple(one for one in steps if one.step >= step) for key, steps in self.history.items()}
        self.history = {key: steps for key, steps in kept.items() if steps}
        self.missed.clear()

    def can_reuse(self, branches: set[str], sample: int) -> bool:
        """Whether all of these branches have a full step to reuse, and the last one is the same step for each."""
        last = {steps[-1].step for (name, index), steps in self.history.items() if name in branches and index == sample}
        return len(last) == 1 and all((name, sample) in self.history for name in branches)

    def has_newest(self, branch: str, sample: int, *, joint: bool) -> bool:
        """Whether a branch has a full step to reuse, and with `joint` no other branch has a later one."""
        own = self.history.get((branch, sample))
        others = (steps for (_, index), steps in self.history.items() if index == sample)
        return own is not None and not (joint and any(steps[-1].step > own[-1].step for steps in others))

    def release(self, branch: str, scope: str) -> None:
        """Drop a branch's tensors after its call of the last step, because the decoder needs the memory."""
        self.history = {key: steps for key, steps in self.history.items() if key[0] != branch}
        self.conditions.pop(branch, None)
        self.proxies.pop(scope, None)

    def bytes_held(self) -> int:
        kept = [tensor for steps in self.history.values() for step in steps for tensor in (step.tensor, step.side)]
        return sum(tensor.nbytes for tensor in (*kept, *self.proxies.values()) if tensor is not None)
