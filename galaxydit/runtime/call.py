"""The transformer call under way: what identifies it, how it is decided, and the tensors that are kept until its end.

A computed call is part of a full step; a reused call predicts its output from earlier full steps.
"""

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from galaxydit.policies.policy import Decision, Reason
from galaxydit.report import CallRecord
from galaxydit.runtime.clean import Mix
from galaxydit.runtime.generation import Generation
from galaxydit.runtime.step import StepInfo
from galaxydit.runtime.trajectory import Trajectory, TransformerState


class LeaveForward(Exception):  # noqa: N818  (it is no error)
    """Raised to leave a forward pass as soon as it is known which samples are reused; never seen outside the plugin."""


@dataclass
class Call:
    """The state of one transformer call, which is kept until the report has the call's records.

    A sample is one video of the batch. Of n samples, the sample at place i has the batch rows i, i + n, i + 2 n and so
    on: one row for each guidance branch in the batch.

    Attributes:
        generation, trajectory: the generation and the trajectory that the call belongs to.
        component: name of the transformer in the pipeline.
        state: the transformer's state in this trajectory.
        branch: guidance branch, "cond" or "uncond"; "call 0", "call 1" if the pipeline names none.
        scope: decision scope, the branches that share one decision: the name of the branch, or "all branches".
        info: step, number of steps and noise level.
        latent: the transformer's `hidden_states`.
        samples: indices of the samples with decisions of their own; (0,) where one decision serves the batch.
        conditional_half: whether distances are measured only on the second half of the batch, the conditional branch; a
            boolean on the device, or None for no.
        is_divisible: whether some samples can be computed without the others.
        is_guided: whether the pipeline says that it guides this step; None where it does not say.
        mix: what to convert an output to a clean prediction by; None unless the scheduler draws noise.
        has_history: for each sample, whether this branch has a full step to reuse.
        is_bypassed: whether the call is neither reused nor stored.
        may_correct: whether every rank that shares the weights corrects its outputs at this step.
        decisions: one `Decision` (compute or reuse, and why) for each sample; empty until the step is decided.
        distances: distance of the proxy since the previous step, for each sample; empty where it was not measured.
        blocks_run: number of blocks that ran; a block that was left half way counts by its share.
        skips_stack: whether the call is reused, so that the remaining blocks do not run.
        is_repeated: True while the transformer, after computing a full step, runs again with the predicted residual
            in place of the blocks, to get the outputs that reuse would have given. Observers receive nothing from this
            second run.
        before: input of the first block `(batch, tokens, dim)`, kept to compute `residual`; None with `reuse="output"`.
        block_input: the same tensor, kept for proxies that read it later in the first block; None without such proxies.
        residual: what the block stack added to `before` in a full step; None with `reuse="output"`.
        first_output: output of the first block, kept so that the computed samples of a mixed batch do not run this
            block again; else None.
        parts: in a mixed batch, a call of the computed samples and a call of the reused samples; else empty.
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
    conditional_half: Tensor | None = None
    is_divisible: bool = True
    is_guided: bool | None = None
    mix: Mix | None = None
    has_history: tuple[bool, ...] = ()
    is_bypassed: bool = False
    may_correct: bool = True
    decisions: tuple[Decision, ...] = ()
    distances: tuple[float, ...] = ()
    blocks_run: float = 0.0
    skips_stack: bool = False
    is_repeated: bool = False
    before: Tensor | None = None
    block_input: Tensor | None = None
    residual: Tensor | None = None
    first_output: Any = None
    parts: list["Call"] = field(default_factory=list)

    @property
    def decision(self) -> Decision | None:
        """The decision of the first sample; None until the step is decided."""
        return self.decisions[0] if self.decisions else None

    @property
    def reused(self) -> list[bool]:
        """For each sample, whether it is reused: its decision is reuse, and its branch has a full step to reuse.

        Empty until the step is decided. All False where one sample must be computed and the batch cannot be divided.
        """
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
    def is_mixed(self) -> bool:
        """Whether the batch is mixed: some samples are reused and the others computed."""
        return len(set(self.reused)) > 1

    def records(self, component: str, blocks: int) -> list[CallRecord]:
        """Records for the report, one for each sample in order: its step, decision, reason, distance and blocks run.

        `component` is the transformer's name in the pipeline, and `blocks` the number of its blocks.
        """
        if self.parts:
            of_parts = (record for part in self.parts for record in part.records(component, blocks))
            return sorted(of_parts, key=lambda record: record.sample)
        records = []
        for place, sample in enumerate(self.samples):
            decision = self.decisions[place] if self.decisions else Decision(False, Reason.PROXY_NOT_READ)
            distance = self.distances[place] if self.distances else None
            reason = decision.reason
            if decision.reuse and not self.skips_stack:
                reason = Reason.NO_BRANCH_HISTORY if self.is_divisible else Reason.OTHER_SAMPLE
            record = CallRecord(
                step=self.info.step,
                sigma=self.info.sigma,
                transformer=component,
                branch=self.branch,
                reused=self.skips_stack,
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
