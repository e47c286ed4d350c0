"""Attach a decision rule to a pipeline: observe its signal, cache full steps, and reuse them.

For WanPipeline, which calls its transformer once per guidance branch.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from diffusers import DiffusionPipeline
from torch import Tensor

from galaxydit import Observer
from galaxydit.errors import refusal
from galaxydit.eval.methods.caches import bytes_in
from galaxydit.eval.methods.rules.decision import StepObservation, StepRule, alignment
from galaxydit.eval.methods.rules.rule_engine import driven
from galaxydit.families import SEPARATE
from galaxydit.pipelines.compute_counter import only_transformer
from galaxydit.pipelines.trial import Attached
from galaxydit.runtime.call import Call
from galaxydit.runtime.generation import Generation
from galaxydit.runtime.guidance import guidance_of
from galaxydit.runtime.recognition import family_of

Signal = Literal["latent", "time_embedding", "time_projection", "first_block"]
"""The watched tensor: the transformer's input, the time embedding before or after the projection that modulates the
blocks, or the first block's output. With "first_block", a reused step runs the first block, and extrapolates through
the residuals (output - input of the block stack) of the last two full steps, in proportion to the change of the first
block's own residual, the probe."""
ALL_BRANCHES = "all branches"
EMBEDDER = "condition_embedder"


@dataclass(frozen=True)
class CachedOutput:
    """Input and output of the transformer at a branch's last full step, `(batch, channels, frames, height, width)`."""

    latent: Tensor
    output: Tensor


@dataclass(frozen=True)
class CachedResidual:
    """Residual (output - input) of the block stack in a full step, and of its first block, the `probe`.

    The probe is empty unless the signal is "first_block".
    """

    residual: Tensor
    probe: Tensor


Predict = Callable[[Tensor, CachedOutput, str, int], Tensor]
"""Function that returns the output of a reused step. Its arguments are the latent, a `CachedOutput` (the branch's last
full step), the branch's name and the step index."""


@dataclass
class RuleState:
    """State of one generation. A scope is one branch, or ALL_BRANCHES if one decision holds for all.

    rules, decisions (of the current step; True reuses it), previous_signal (at the last decided step) and cached_signal
    (at the last full step): by scope.
    slopes (size of the output's change / of the latent's, between the last two full steps), outputs (of the last full
    step), residuals (of the last full step, with "first_block" of the last two, older first): by branch.
    """

    generation: Generation | None = None
    step: int = -1
    rules: dict[str, StepRule] = field(default_factory=dict)
    decisions: dict[str, bool] = field(default_factory=dict)
    previous_signal: dict[str, Tensor] = field(default_factory=dict)
    cached_signal: dict[str, Tensor] = field(default_factory=dict)
    slopes: dict[str, float] = field(default_factory=dict)
    outputs: dict[str, CachedOutput] = field(default_factory=dict)
    residuals: dict[str, tuple[CachedResidual, ...]] = field(default_factory=dict)


@dataclass(eq=False)
class RuleObserver(Observer):
    """Observer and driver that decides and predicts a pipeline's calls; fields as arguments of `under_rule`."""

    pipe: DiffusionPipeline
    new_rule: Callable[[], StepRule]
    signal: Signal | None
    joint: bool
    prediction: Predict | None
    state: RuleState = field(default_factory=RuleState)
    _signal: Tensor | None = None
    _probe: Tensor = field(default_factory=lambda: torch.empty(0))

    def __post_init__(self) -> None:
        self.proxies = frozenset({"block_output", "block_residual"} if self.signal == "first_block" else ())
        self.modules = (EMBEDDER,) if self.signal in ("time_embedding", "time_projection") else ()

    def on_end(self) -> None:
        self.state = RuleState()

    def bytes_held(self) -> int:
        state = self.state
        return bytes_in([state.previous_signal, state.cached_signal, state.outputs, state.residuals])

    def on_module(self, call: Call, path: str, output: Any) -> None:
        if call.decision is None:
            self._signal = output[0 if self.signal == "time_embedding" else 1].detach()

    def on_proxy(self, call: Call, name: str, tensor: Tensor) -> None:
        if name == "block_residual":
            self._probe = tensor
        elif call.decision is None:
            self._signal = tensor

    def decide(self, call: Call) -> bool | None:
        """True to reuse this call, False to compute it, None until the signal is known.

        The rule is asked once per step and scope. A branch without a cached full step is computed in any case.
        """
        if self.state.generation is not call.generation:
            self.state = RuleState(call.generation)
        state, scope = self.state, ALL_BRANCHES if self.joint else call.branch
        if state.step != call.info.step:
            state.step = call.info.step
            state.decisions.clear()
        if self.signal == "latent":
            self._signal = call.latent.detach()
        if scope not in state.decisions:
            if self.signal is not None and self._signal is None:
                return None
            if scope not in state.rules:
                state.rules[scope] = self.new_rule()
            reuse = state.rules[scope].decide(self._observe(call, scope))
            state.decisions[scope] = reuse
            if self._signal is not None:
                state.previous_signal[scope] = self._signal
                if not reuse and self.signal != "latent":
                    state.cached_signal[scope] = self._signal
        self._signal = None
        cached = state.residuals if self.prediction is None else state.outputs
        return state.decisions[scope] and call.branch in cached

    def _observe(self, call: Call, scope: str) -> StepObservation:
        numbers: dict[str, float] = {}
        state, signal = self.state, self._signal
        previous, cached = state.previous_signal.get(scope), state.cached_signal.get(scope)
        if signal is not None and previous is not None:
            numbers["change_size"], numbers["size"] = mean_size(signal - previous), mean_size(previous)
        if signal is not None and cached is not None:
            numbers["change_since_full"] = mean_size(signal - cached) / max(mean_size(cached), 1e-12)
        if self.signal == "latent" and call.branch in state.outputs:
            numbers["output_size"] = mean_size(state.outputs[call.branch].output)
        if call.branch in state.slopes:
            numbers["slope"] = state.slopes[call.branch]
        return StepObservation(call.info.step, call.info.steps, guidance_of(self.pipe), call.branch, **numbers)

    def on_output(self, call: Call, output: Tensor) -> None:
        """Cache latent and output of a full step, and update the slope if the signal is "latent".

        With `joint`, only the branch that is called first has a slope.
        """
        if self.prediction is None:
            return
        state, cached = self.state, CachedOutput(call.latent.detach(), output.detach())
        previous = state.outputs.get(call.branch)
        decides = not self.joint or len(call.trajectory.seen[-1]) == 1
        if self.signal == "latent" and previous is not None and decides:
            change = mean_size(cached.latent - previous.latent)
            state.slopes[call.branch] = mean_size(cached.output - previous.output) / max(change, 1e-12)
        state.outputs[call.branch] = cached

    def on_stack(self, call: Call, before: Tensor, after: Tensor) -> None:
        previous = self.state.residuals.get(call.branch, ())[-1:] if self.signal == "first_block" else ()
        self.state.residuals[call.branch] = (*previous, CachedResidual((after - before).detach(), self._probe))

    def predict(self, call: Call) -> Tensor:
        """The output of a reused call, or without `prediction` the residual of its block stack."""
        if self.prediction is not None:
            return self.prediction(call.latent.detach(), self.state.outputs[call.branch], call.branch, call.info.step)
        cached = self.state.residuals[call.branch]
        older, newest = cached[0], cached[-1]
        if older is newest:
            return newest.residual
        share = alignment(mean_size(self._probe - older.probe), mean_size(newest.probe - older.probe))
        return older.residual + share * (newest.residual - older.residual)


@contextmanager
def under_rule(
    pipe: DiffusionPipeline,
    new_rule: Callable[[], StepRule],
    *,
    signal: Signal | None = None,
    joint: bool = True,
    predict: Predict | None = None,
) -> Iterator[Attached]:
    """Within the context, a WanPipeline generates under a rule.

    Args:
        new_rule: returns a new rule, for each generation, with `joint=False` for each branch of it.
        signal: the tensor that the rule watches; None for a rule that decides by the step index alone.
        joint: one decision per step for all guidance branches, made in the branch that is called first.
        predict: returns the output of a reused step; None adds the residual of the last full step instead, with the
            signal "first_block" extrapolated from the last two.

    Raises GalaxyDiTError for two transformers, branches in one call, and a transformer that has a cache already.
    """
    check_branches(pipe)
    observer = RuleObserver(pipe, new_rule, signal, joint, predict)
    with driven(pipe, observer, reuse="residual" if predict is None else "output"):
        yield Attached(observer.bytes_held)


def check_branches(pipe: DiffusionPipeline) -> None:
    """Raise GalaxyDiTError for two transformers, and for guidance branches that are computed in one call."""
    transformer = only_transformer(pipe)
    if family_of(transformer).branches != SEPARATE:
        expected = "one that is called once per guidance branch, such as Wan's"
        raise refusal("transformer", type(transformer).__name__, expected, "leave this method out")


def mean_size(tensor: Tensor) -> float:
    return float(tensor.abs().mean(dtype=torch.float32))
