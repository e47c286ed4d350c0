"""The transformer call under way, and the part of it that holds some samples of the batch."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from galaxydit.policies.policy import Decision
from galaxydit.report import CallRecord
from galaxydit.runtime.generation import Generation, TransformerState
from galaxydit.runtime.samples import rows_of, take_rows
from galaxydit.runtime.step import StepInfo
from galaxydit.torch_compile import beside_the_model


@dataclass
class Call:
    """The transformer call under way.

    Attributes:
        generation, state: the generation it belongs to, and what this transformer remembers of it.
        branch: guidance branch, "cond" or "uncond", or "call 0", "call 1" where the pipeline names none.
        scope: decision scope: the branch, or all branches jointly.
        info: step, number of steps and sigma.
        latent: the transformer's `hidden_states`.
        samples: indices of the samples of the batch that decide for themselves; (0,) where one decision serves all. The
            rows of the one at place i of n are i, i + n, i + 2 n and so on.
        conditional_half: whether only the second half of the batch, the conditional one, counts in distances.
        is_divisible: whether some samples can be computed without the others.
        is_cached: whether the predictions come from the history; else an observer makes them.
        decisions: one for each sample; empty until the step is decided.
        distances: relative L1 distance of the proxy for each sample; empty where it was not read.
        blocks_run: block evaluations done.
        skips_stack: whether the block stack is reused.
        before, after: hidden states `(batch, tokens, dim)` around the block stack, where they are watched.
        first_output: what the first block returned, where only some samples are computed after it.
        parts: the computed and the reused samples as calls of their own, where there are both.
    """

    generation: Generation
    state: TransformerState
    branch: str
    scope: str
    info: StepInfo
    latent: Tensor
    samples: tuple[int, ...] = (0,)
    conditional_half: bool = False
    is_divisible: bool = True
    is_cached: bool = True
    decisions: tuple[Decision, ...] = ()
    distances: tuple[float, ...] = ()
    blocks_run: float = 0.0
    skips_stack: bool = False
    before: Tensor | None = None
    after: Tensor | None = None
    first_output: Any = None
    parts: list["Call"] = field(default_factory=list)

    @property
    def decision(self) -> Decision | None:
        """The decision of the first sample; None until the step is decided."""
        return self.decisions[0] if self.decisions else None

    @property
    def reused(self) -> list[bool]:
        """For each sample whether it is reused: decided, and there is something to reuse; empty until decided."""
        reused = [
            decision.reuse and (not self.is_cached or bool(self.state.history.get((self.branch, sample))))
            for sample, decision in zip(self.samples, self.decisions, strict=False)
        ]
        return reused if self.is_divisible or all(reused) else [False] * len(reused)

    @property
    def is_reused(self) -> bool:
        """Whether all samples are reused."""
        return bool(self.decisions) and all(self.reused)

    @property
    def is_mixed(self) -> bool:
        """Whether some samples are reused, and others computed."""
        return len(set(self.reused)) > 1

    @beside_the_model
    def part(self, places: list[int]) -> "Call":
        """The call of the samples at these places alone, which are all computed or all reused."""
        rows, count = rows_of(places, len(self.samples), len(self.latent)), len(self.latent)
        return replace(
            self,
            latent=take_rows(self.latent, rows, count),
            samples=tuple(self.samples[place] for place in places),
            decisions=tuple(self.decisions[place] for place in places),
            distances=tuple(self.distances[place] for place in places) if self.distances else (),
            first_output=None if self.reused[places[0]] else take_rows(self.first_output, rows, count),
            before=None,
            after=None,
            parts=[],
        )

    def records(self, component: str, blocks: int) -> list[CallRecord]:
        """One record for each sample in order; `component` is the transformer, `blocks` the number of its blocks."""
        records = [record for part in self.parts or [self] for record in part._records(component, blocks)]
        return sorted(records, key=lambda record: record.sample)

    def _records(self, component: str, blocks: int) -> Iterator[CallRecord]:
        for place, sample in enumerate(self.samples):
            decision = self.decisions[place] if self.decisions else None
            distance = self.distances[place] if self.distances else None
            reason = decision.reason if decision else "the proxy was not read"
            if decision and decision.reuse and not self.skips_stack:
                reason = "this branch had nothing to reuse" if self.is_divisible else "another sample is computed"
            yield CallRecord(
                step=self.info.step,
                sigma=self.info.sigma,
                transformer=component,
                branch=self.branch,
                reused=self.skips_stack,
                reason=reason,
                distance=distance,
                accumulated=decision.accumulated if decision and distance is not None else None,
                blocks_run=self.blocks_run,
                blocks=blocks,
                expected_error=decision.expected_error if decision else None,
                sample=sample,
            )
