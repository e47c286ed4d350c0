"""What the full steps of one transformer left behind, in one loop, for one window: tensors to reuse, and decisions."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from galaxydit.extrapolation import CachedStep
from galaxydit.policies.policy import Controller, Decision

Key = tuple[str, int]
"""Branch and index of the video in the batch."""


@dataclass
class History:
    """State of one transformer between the calls of one window.

    Attributes:
        videos, was_guided: 0 until a call is divided into videos; None where the pipeline does not say if it guides.
        rows, shapes: by branch, the last call's batch size, and the output shapes of the last full step.
        steps, missed: cached full steps, oldest first, and the steps reused since the last one.
        proxies, decisions: by decision scope (one branch, or all branches jointly), of the latest step.
        errors: relative error of a prediction at the last full step, on the device, until the next decision reads it.
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

    def enter(self, branch: str, rows: int) -> None:
        """Forget all but videos and controllers if the batch has another size than the branch's last."""
        if self.rows.get(branch, rows) != rows:
            # Tensors of another size fit no later call, but each video's policy goes on.
            fresh = History(self.videos, controllers=self.controllers)
            vars(self).update(vars(fresh))
        self.rows[branch] = rows

    def keep_only(self, branches: set[str]) -> None:
        """Drop other branches, whose full steps are too old, and the decisions of the step before."""
        self.decisions.clear()
        if not branches:
            self.proxies.clear()  # the step before did not call the component, so its distance would span several steps
        self._keep_full_steps(branches)

    def forget(self, before: int) -> None:
        """Drop the full steps before a step, because a condition changed or the latent is another one."""
        for key, steps in list(self.steps.items()):
            self.steps[key] = tuple(cached for cached in steps if cached.step >= before)
            if not self.steps[key]:
                del self.steps[key]
        self.missed.clear()

    def can_reuse(self, branches: set[str], video: int) -> bool:
        """Whether all of these branches have a full step to reuse, and the last one is the same step for each."""
        # Guidance subtracts the branches' predictions, so they have to start from the same full step.
        last = set()
        for branch in branches:
            if (branch, video) not in self.steps:
                return False
            last.add(self.steps[branch, video][-1].step)
        return len(last) == 1

    def has_newest(self, branch: str, video: int, *, joint: bool) -> bool:
        """Whether a branch has a full step to reuse, and with `joint` no other branch has a later one."""
        if (branch, video) not in self.steps:
            return False
        if not joint:
            return True
        newest = self.steps[branch, video][-1].step
        return all(steps[-1].step <= newest for (_, index), steps in self.steps.items() if index == video)

    def release(self, branch: str, scope: str) -> None:
        """Drop a branch's tensors after its call of the last step, because the decoder needs the memory."""
        self._keep_full_steps({name for name, _ in self.steps} - {branch})
        self.proxies.pop(scope, None)

    def _keep_full_steps(self, branches: set[str]) -> None:
        for key in list(self.steps):
            if key[0] not in branches:
                del self.steps[key]

    def bytes_held(self) -> int:
        total = sum(proxy.nbytes for proxy in self.proxies.values())
        for steps in self.steps.values():
            for cached in steps:
                total += cached.tensor.nbytes
                if cached.side is not None:
                    total += cached.side.nbytes
        return total
