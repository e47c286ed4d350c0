"""The transformer call under way: its samples, their decisions, and the part of it that holds some of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from galaxydit.families import CONCATENATED, Family
from galaxydit.policies.config import Controller, GalaxyDiTConfig
from galaxydit.policies.policy import Decision, Observation
from galaxydit.proxies import relative_l1
from galaxydit.report import CallRecord
from galaxydit.runtime.generation import Generation, TransformerState
from galaxydit.runtime.samples import are_divisible, rows_of, sample_count, take_rows
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
        is_repeated: whether the model runs again, for what reuse would have given; nothing is observed then.
        before: hidden states `(batch, tokens, dim)` before the block stack, where it is watched.
        residual: what the block stack added to them in a full step.
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
    is_repeated: bool = False
    before: Tensor | None = None
    residual: Tensor | None = None
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
            residual=None,
            parts=[],
        )

    def records(self, component: str, blocks: int) -> list[CallRecord]:
        """One record for each sample in order; `component` is the transformer, `blocks` the number of its blocks."""
        if self.parts:
            of_parts = (record for part in self.parts for record in part.records(component, blocks))
            return sorted(of_parts, key=lambda record: record.sample)
        records = []
        for place, sample in enumerate(self.samples):
            decision = self.decisions[place] if self.decisions else Decision(False, "the proxy was not read")
            distance = self.distances[place] if self.distances else None
            reason = decision.reason
            if decision.reuse and not self.skips_stack:
                reason = "this branch had nothing to reuse" if self.is_divisible else "another sample is computed"
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
            )
            records.append(record)
        return records


def divide(call: Call, family: Family, inputs: Mapping[str, Any], *, by_sample: bool) -> bool:
    """Find the samples and the conditional half of a call whose proxy is read.

    Returns whether some samples can be computed without the others. Their number is that of the first call of the
    generation.
    """
    latent, state = call.latent, call.state
    if family.branches == CONCATENATED and len(latent) % 2 == 0:
        # Guidance doubles the batch with the same latents, so the input itself shows whether there is guidance.
        call.conditional_half = torch.equal(*latent.chunk(2))
    if by_sample:
        state.samples = state.samples or sample_count(latent, family)
        if len(latent) % state.samples == 0:
            call.samples = tuple(range(state.samples))
    if call.decisions and len(call.decisions) != len(call.samples):
        call.decisions = (min(call.decisions, key=lambda decision: decision.reuse),) * len(call.samples)
    call.is_divisible = len(call.samples) == 1 or are_divisible(inputs, len(latent))
    return call.is_divisible


def distances_of(call: Call, current: Tensor, previous: Tensor | None, group: Any | None) -> tuple[float, ...]:
    """The largest distance in the rows of each sample; where one decision serves all, that of the hardest sample.

    Empty without a previous tensor of the same shape.
    """
    if previous is None or previous.shape != current.shape:
        return ()
    distances, samples = relative_l1(current, previous, group), len(call.samples)
    if len(distances) % len(call.latent):
        return (float(distances.max()),) * samples
    rows = distances.view(len(call.latent), -1).amax(dim=1).view(-1, samples)
    if call.conditional_half and len(rows) > 1:
        rows = rows[len(rows) // 2 :]
    return tuple(rows.amax(dim=0).tolist())


@beside_the_model
def decide(call: Call, config: GalaxyDiTConfig, distances: tuple[float, ...]) -> None:
    """Decide the step for each sample of a call; without `distances` none was measured."""
    state, generation, is_joint = call.state, call.generation, call.scope != call.branch
    branches = {branch for branch, _ in state.history if is_joint} or {call.branch}
    errors = {key: error for key, error in state.errors.items() if is_joint or key[0] == call.branch}
    decisions = []
    for sample, distance in zip(call.samples, distances or (None,) * len(call.samples), strict=True):
        controller = state.controllers.setdefault((call.scope, sample), Controller(config))
        has_history = all(state.history.get((branch, sample)) for branch in branches)
        error = max((error for (_, other), error in errors.items() if other == sample), default=None)
        step, steps = call.info.step, call.info.steps
        known = Observation(step, steps, distance, has_history, generation.sigmas, error, generation.first)
        decisions.append(controller.decide(known))
    call.distances = distances
    call.decisions = state.decisions[call.scope] = tuple(decisions)
    for key in errors:
        del state.errors[key]
