"""What the full steps of one transformer left behind, in one loop, for one window: tensors to reuse, and decisions."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from galaxydit.extrapolation import CachedStep
from galaxydit.policies.policy import Controller, Decision
from galaxydit.runtime.latents import HostCopy

Key = tuple[str, int]
"""Branch and index of the video in the batch."""

StreamKey = tuple[str, int, int]
"""Branch, index of the video, and index of the output stream."""


@dataclass
class History:
    """State of one transformer between the calls of one window.

    Attributes:
        videos, was_guided: 0 until a call is divided into videos; None where the pipeline does not say if it guides.
        rows, shapes: by branch, the last call's batch size, and the output shapes of the last full step.
        steps, missed: cached full steps, oldest first, and the steps reused since the last one.
        proxies, decisions: by decision scope (one branch, or all branches jointly), of the latest step.
        errors: relative error of a prediction at the last full step, on the device, until the next decision reads it.
        slope_errors: step, keys, and squared errors at order 1 and 0, `(keys, 2)`, of full steps not judged yet.
    """

    videos: int = 0
    was_guided: bool | None = None
    rows: dict[str, int] = field(default_factory=dict)
    shapes: dict[str, tuple[torch.Size, ...]] = field(default_factory=dict)
    steps: dict[Key, tuple[CachedStep, ...]] = field(default_factory=dict)
    missed: dict[Key, list[int]] = field(default_factory=dict)
    proxies: dict[str, Tensor] = field(default_factory=dict)
    controllers: dict[tuple[str, int], Controller] = field(default_factory=dict)
    decisions: dict[str, tuple[Decision, ...]] = field(default_factory=dict)
    errors: dict[Key, Tensor] = field(default_factory=dict)
    slope_errors: list[tuple[int, tuple[StreamKey, ...], HostCopy]] = field(default_factory=list)
    slope_failures: dict[StreamKey, tuple[bool, ...]] = field(default_factory=dict)

    def enter(self, branch: str, rows: int) -> None:
        """Forget all but videos and controllers if the batch has another size than the branch's last."""
        if self.rows.get(branch, rows) != rows:
            fresh = History(self.videos, controllers=self.controllers)
            vars(self).update(vars(fresh))
        self.rows[branch] = rows

    def keep_only(self, branches: set[str]) -> None:
        """Drop other branches, whose full steps are too old, and the decisions of the step before."""
        self.decisions.clear()
        if not branches:
            self.proxies.clear()
        self.steps = {key: steps for key, steps in self.steps.items() if key[0] in branches}

    def forget(self, before: int) -> None:
        """Drop the full steps before a step, because a condition changed or the latent is another one."""
        kept = {key: tuple(one for one in steps if one.step >= before) for key, steps in self.steps.items()}
        self.steps = {key: steps for key, steps in kept.items() if steps}
        self.missed.clear()

    def can_reuse(self, branches: set[str], video: int) -> bool:
        """Whether all of these branches have a full step to reuse, and the last one is the same step for each."""
        last = {steps[-1].step for (name, index), steps in self.steps.items() if name in branches and index == video}
        return len(last) == 1 and all((name, video) in self.steps for name in branches)

    def has_newest(self, branch: str, video: int, *, joint: bool) -> bool:
        """Whether a branch has a full step to reuse, and with `joint` no other branch has a later one."""
        own = self.steps.get((branch, video))
        others = (steps for (_, index), steps in self.steps.items() if index == video)
        return own is not None and not (joint and any(steps[-1].step > own[-1].step for steps in others))

    def release(self, branch: str, scope: str) -> None:
        """Drop a branch's tensors after its call of the last step, because the decoder needs the memory."""
        self.steps = {key: steps for key, steps in self.steps.items() if key[0] != branch}
        self.proxies.pop(scope, None)

    def bytes_held(self) -> int:
        kept = [tensor for steps in self.steps.values() for step in steps for tensor in (step.tensor, step.side)]
        return sum(tensor.nbytes for tensor in (*kept, *self.proxies.values()) if tensor is not None)
