"""The progress of one call: how its videos are decided, and the tensors that are kept until its end."""

from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

from torch import Tensor

from galaxydit.policies.policy import Decision, Reason
from galaxydit.report import CallRecord
from galaxydit.runtime.call import Call
from galaxydit.runtime.clean import Mix
from galaxydit.runtime.generation import Generation
from galaxydit.runtime.history import History
from galaxydit.runtime.window import Window


class LeaveForward(Exception):  # noqa: N818  (it is no error)
    """Raised to leave a forward pass as soon as it is known which videos are reused; never seen outside the plugin."""


@dataclass(eq=False)
class Work:
    """One call, or the part of it that computes or reuses the same videos.

    Attributes:
        scope: key of the decision: the window's name if all of its branches share it, else the branch.
        videos, is_divisible: indices of the videos with decisions of their own; whether each can be computed alone.
        mix: weights of a clean prediction; None without drawn noise.
        decisions, distances: for each video; empty before they are known.
        is_stored: False where nothing of the call may be reused later.
        may_correct: every rank that shares the weights corrects.
        blocks_run: number of blocks that ran, with shares.
        is_repeated: a full step runs again around the predicted residual, unseen by observers.
        block_input, residual: input of the first block `(batch, tokens, dim)`, kept where a proxy or residual reuse
            needs it, and what the blocks added to it (residual reuse).
        first_output: the first block's output, for videos that are computed after the others were decided for reuse.
        parts: the two parts of a batch of which some videos are computed and the others reused.
    """

    call: Call
    generation: Generation
    window: Window
    history: History
    scope: str
    videos: tuple[int, ...] = (0,)
    is_divisible: bool = True
    mix: Mix | None = None
    decisions: tuple[Decision, ...] = ()
    distances: tuple[float, ...] = ()
    is_stored: bool = True
    may_correct: bool = True
    blocks_run: float = 0.0
    is_repeated: bool = False
    block_input: Tensor | None = None
    residual: Tensor | None = None
    first_output: Any = None
    parts: list["Work"] = field(default_factory=list)

    @property
    def is_joint(self) -> bool:
        """Whether one decision serves all branches."""
        return self.scope != self.call.branch

    @property
    def is_reused(self) -> bool:
        """Whether all videos are reused; False until the step is decided."""
        return bool(self.decisions) and all(decision.reuse for decision in self.decisions)

    @property
    def is_mixed(self) -> bool:
        """Whether some videos are reused and the others computed."""
        return len({decision.reuse for decision in self.decisions}) > 1

    @property
    def skips_stack(self) -> bool:
        """Whether the remaining blocks do not run."""
        return self.is_reused or self.is_repeated

    def keep_proxy(self, name: str, tensor: Tensor) -> None:
        self.call = replace(self.call, proxies={**self.call.proxies, name: tensor})

    def compute(self, reason: Reason) -> None:
        """Compute the videos that were to be reused, for this reason."""
        self.decisions = tuple(computed(decision, reason) for decision in self.decisions)

    def records(self, blocks: int) -> list[CallRecord]:
        """Records for the report, one for each video, of a transformer of so many `blocks`."""
        records: list[CallRecord] = []
        if self.parts:
            for part in self.parts:
                records.extend(part.records(blocks))
            return sorted(records, key=lambda record: record.sample)
        # A call that was never decided has no decisions, and a policy without a proxy no distances.
        for video, decided, distance in zip_longest(self.videos, self.decisions, self.distances):
            decision = decided or Decision(False, Reason.PROXY_NOT_READ)
            record = CallRecord(
                step=self.call.info.step,
                sigma=self.call.info.sigma,
                transformer=self.call.component,
                branch=self.call.branch,
                reused=self.is_reused,
                reason=decision.reason,
                distance=distance,
                accumulated=None if distance is None else decision.accumulated,
                blocks_run=self.blocks_run,
                blocks=blocks,
                expected_error=decision.expected_error,
                sample=video,
                rows=len(self.call.latent) // len(self.videos),
            )
            records.append(record)
        return records


def computed(decision: Decision, reason: Reason) -> Decision:
    """The decision, to compute for this reason if it was to reuse."""
    if not decision.reuse:
        return decision
    return replace(decision, reuse=False, reason=reason)
