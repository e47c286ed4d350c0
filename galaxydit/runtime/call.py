"""The transformer call under way: what identifies it, how it is decided, and the tensors kept until its end."""

from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from torch import Tensor

from galaxydit.policies.policy import Decision, Reason
from galaxydit.report import CallRecord
from galaxydit.runtime.clean import Mix
from galaxydit.runtime.generation import Generation
from galaxydit.runtime.step import StepInfo
from galaxydit.runtime.trajectory import Trajectory
from galaxydit.runtime.transformer_state import TransformerState


class LeaveForward(Exception):  # noqa: N818  (it is no error)
    """Raised to leave a forward pass as soon as it is known which samples are reused; never seen outside the plugin."""


@dataclass
class Call:
    """The state of one transformer call, until the report has its records.

    Attributes:
        state, scope: the transformer's state in the trajectory; the branches that share one decision.
        branch: "cond" or "uncond"; "call 0", "call 1" if the pipeline names none.
        samples, is_divisible: indices of the samples with decisions of their own; whether each can be computed alone.
        is_guided, mix: None where the pipeline does not say; weights of a clean prediction, None without drawn noise.
        has_history, decisions, distances: for each sample; empty before they are known.
        is_bypassed, may_correct: neither reused nor stored; every rank that shares the weights corrects.
        blocks_run: number of blocks that ran, with shares.
        is_repeated: a full step runs again around the predicted residual, unseen by observers.
        proxies: tensors of this call that `galaxydit.Reuse` reads, by name of the proxy.
        block_input, residual: input of the first block `(batch, tokens, dim)`, kept where a proxy or residual reuse
            needs it, and what the blocks added to it (residual reuse).
        first_output: the first block's output, for the computed samples of a mixed batch.
        parts: in a mixed batch, a call of the computed samples and a call of the reused samples.
    """

    generation: Generation
    trajectory: Trajectory
    component: str
    state: TransformerState
    branch: str
    scope: str
    info: StepInfo
    latent: Tensor
    samples: tuple[int, ...] = (0,)
    is_divisible: bool = True
    is_guided: bool | None = None
    mix: Mix | None = None
    has_history: tuple[bool, ...] = ()
    is_bypassed: bool = False
    may_correct: bool = True
    decisions: tuple[Decision, ...] = ()
    distances: tuple[float, ...] = ()
    blocks_run: float = 0.0
    is_repeated: bool = False
    proxies: dict[str, Tensor] = field(default_factory=dict)
    block_input: Tensor | None = None
    residual: Tensor | None = None
    first_output: Any = None
    parts: list["Call"] = field(default_factory=list)

    @property
    def is_joint(self) -> bool:
        """Whether one decision serves all branches."""
        return self.scope != self.branch

    @property
    def reused(self) -> list[bool]:
        """For each sample, whether it is decided so and its branch has a full step; all False where one sample must be
        computed and the batch cannot be divided."""
        if not self.decisions:
            return []
        reused = [
            decision.reuse and has_history
            for decision, has_history in zip(self.decisions, self.has_history, strict=True)
        ]
        return reused if self.is_divisible or all(reused) else [False] * len(reused)

    @property
    def is_reused(self) -> bool:
        """Whether all samples are reused; False until the step is decided."""
        return bool(self.decisions) and all(self.reused)

    @property
    def skips_stack(self) -> bool:
        """Whether the remaining blocks do not run."""
        return self.is_reused or self.is_repeated

    @property
    def is_mixed(self) -> bool:
        """Whether the batch is mixed: some samples are reused and the others computed."""
        return len(set(self.reused)) > 1

    def records(self, blocks: int) -> list[CallRecord]:
        """Records for the report, one for each sample, of a transformer of so many `blocks`."""
        if self.parts:
            of_parts = (record for part in self.parts for record in part.records(blocks))
            return sorted(of_parts, key=lambda record: record.sample)
        records = []
        for sample, decided, distance in zip_longest(self.samples, self.decisions, self.distances):
            decision = decided or Decision(False, Reason.PROXY_NOT_READ)
            reason = decision.reason
            if decision.reuse and not self.is_reused:
                reason = Reason.NO_BRANCH_HISTORY if self.is_divisible else Reason.OTHER_SAMPLE
            record = CallRecord(
                step=self.info.step,
                sigma=self.info.sigma,
                transformer=self.component,
                branch=self.branch,
                reused=self.is_reused,
                reason=reason,
                distance=distance,
                accumulated=None if distance is None else decision.accumulated,
                blocks_run=self.blocks_run,
                blocks=blocks,
                expected_error=decision.expected_error,
                sample=sample,
                rows=len(self.latent) // len(self.samples),
            )
            records.append(record)
        return records
