"""Attach a decision rule to a pipeline: observe the tensor that the rule watches (the signal), cache full steps, and
reuse them.

A full step is a computed step. A residual is what the block stack, or the first block alone, adds to its input.

Written for WanPipeline, which calls its transformer once per guidance branch, inside `cache_context("cond")` and then
`cache_context("uncond")`.
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
from galaxydit.eval.methods.rules.decision import Rule, StepObservation, alignment
from galaxydit.eval.methods.rules.rule_engine import driven
from galaxydit.families import SEPARATE, family_of
from galaxydit.pipelines.compute_counter import only_transformer
from galaxydit.pipelines.trial import Attached
from galaxydit.runtime.call import Call
from galaxydit.runtime.generation import Generation
from galaxydit.runtime.guidance import guidance_of

Signal = Literal["latent", "time_embedding", "time_projection", "first_block"]
"""The watched tensor: the transformer's input, the time embedding before or after the projection that modulates the
blocks, or the first block's output. With "first_block", a reused step runs the first block, and extrapolates through
the residuals (output - input of the block stack) of the last two full steps, in proportion to the change of the first
block's own residual, the probe."""
ALL_BRANCHES = "all branches"
EMBEDDER = "condition_embedder"


@dataclass(frozen=True)
class CachedOutput:
    """Input `latent` and `output` of the transformer at a branch's last full step, `(batch, channels, frames, height,
    width)`.
    """

    latent: Tensor
    output: Tensor


@dataclass(frozen=True)
class CachedResidual:
    """Residual of the block stack (output - input) in a full step, and residual of its first block, the `probe`.

    The probe is empty unless the signal is "first_block".
    """

    residual: Tensor
    probe: Tensor


Predict = Callable[[Tensor, CachedOutput, str, int], Tensor]
"""Function that returns the output of a reused step. Its arguments are the latent, a `CachedOutput` (the branch's last
full step), the branch's name and the step index."""


@dataclass
class RuleState:
    """State of one generation; `slopes`, `outputs` and `residuals` are by branch, the other dictionaries by scope.

    The scope of a decision is one branch, or ALL_BRANCHES if one decision holds for all branches.

    Attributes:
        generation: the generation under way; None before the first call.
        step: index of the current step; -1 before the first call.
        rules: the rule of each scope.
        decisions: of the current step; True reuses the step.
        previous_signal: the signal at the last decided step.
        cached_signal: the signal at the last full step; empty for the signal "latent".
        slopes: mean absolute change of the transformer's output / mean absolute change of the latent, its input,
            between the last two full steps; empty for other signals than "latent", and if `predict` of `under_rule` is
            None.
        outputs: latent and output of the last full step; empty if `predict` of `under_rule` is None.
        residuals: a tuple with the residuals of the last full step or, for the signal "first_block", of the last two,
            older first; empty if `predict` of `under_rule` is given.
    """

    generation: Generation | None = None
    step: int = -1
    rules: dict[str, Rule] = field(default_factory=dict)
    decisions: dict[str, bool] = field(default_factory=dict)
    previous_signal: dict[str, Tensor] = field(default_factory=dict)
    cached_signal: dict[str, Tensor] = field(default_factory=dict)
    slopes: dict[str, float] = field(default_factory=dict)
    outputs: dict[str, CachedOutput] = field(default_factory=dict)
    residuals: dict[str, tuple[CachedResidual, ...]] = field(default_factory=dict)


@dataclass(eq=False)
class RuleObserver(Observer):
    """Observer and driver that decides and predicts the transformer calls of one pipeline under a rule.

    Attributes:
        pipe, new_rule, signal, joint: the arguments of `under_rule`: the pipeline, a function that returns a new rule,
            the tensor that the rule watches, and whether one decision holds for all branches.
        prediction: the argument `predict` of `under_rule`, a function that returns the output of a reused step. None
            reuses the residual of the block stack.
        state: state of the generation under way, new in each generation.
    """

    pipe: DiffusionPipeline
    new_rule: Callable[[], Rule]
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
        """Bytes of all cached tensors."""
        state = self.state
        return bytes_in([state.previous_signal, state.cached_signal, state.outputs, state.residuals])

    def on_module(self, call: Call, path: str, output: Any) -> None:
        """Keep as the signal the time embedding, or its projection if `signal` is "time_projection".

        `output` is the tuple that Wan's embedder returns: time embedding, its projection, and embeddings of text and
        image. `path` is always that of the embedder. A transformer call that is decided already is ignored.
        """
        if call.decision is None:
            self._signal = output[0 if self.signal == "time_embedding" else 1].detach()

    def on_proxy(self, call: Call, name: str, tensor: Tensor) -> None:
        """Receive the first block's residual or its output, two calls in each transformer call that runs the block.

        The first call has the name "block_residual": the tensor is kept as the probe, whose change since the last full
        steps scales the extrapolation in `predict`. The second has the name "block_output": the tensor itself becomes
        the signal that `decide` reads, unless the transformer call is decided already.
        """
        if name == "block_residual":
            self._probe = tensor
        elif call.decision is None:
            self._signal = tensor

    def decide(self, call: Call) -> bool | None:
        """True to reuse this call, False to compute it, None until the signal is known.

        The rule is asked once per step, or once per step and branch if `joint` is False. A branch without a cached full
        step is computed in any case.
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
        """With `prediction`, cache the latent and the output of a full step; without it, do nothing.

        For the signal "latent", from the second full step on, also update `state.slopes`: mean absolute change of the
        output / mean absolute change of the latent since the full step before. With `joint`, only the branch that is
        called first has a slope.
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
        """Cache the residual of the block stack in a full step; `before` and `after` are its input and output.

        With the signal "first_block" the last two full steps are kept, otherwise only the last one.
        """
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
    new_rule: Callable[[], Rule],
    *,
    signal: Signal | None = None,
    joint: bool = True,
    predict: Predict | None = None,
) -> Iterator[Attached]:
    """Within the context, a pipeline generates under a rule. Yields an `Attached`, which reads the bytes of the cache.

    Args:
        pipe: a WanPipeline.
        new_rule: returns a new rule; called once for each generation, with `joint=False` once for each branch of it.
        signal: the tensor that the rule watches; None for a rule that decides by the step index alone.
        joint: True for one decision per step for all guidance branches, made in the branch that is called first. False
            lets each branch decide for itself.
        predict: returns the output of a reused step. Its four arguments are the latent, a `CachedOutput` (the branch's
            last full step), the branch's name and the step index. None adds the block stack's residual of the last full
            step instead; with the signal "first_block", the residual is extrapolated from the last two full steps.

    Raises GalaxyDiTError for a pipeline with two transformers, and for a transformer that computes all guidance
    branches in one call or has a cache already.
    """
    check_branches(pipe)
    observer = RuleObserver(pipe, new_rule, signal, joint, predict)
    with driven(pipe, observer, reuse="residual" if predict is None else "output"):
        yield Attached(observer.bytes_held)


def check_branches(pipe: DiffusionPipeline) -> None:
    """Raise GalaxyDiTError for a pipeline with two transformers, and for a transformer that computes all guidance
    branches in one call.
    """
    transformer = only_transformer(pipe)
    if family_of(transformer).branches != SEPARATE:
        expected = "one that is called once per guidance branch, such as Wan's"
        raise refusal("transformer", type(transformer).__name__, expected, "leave this method out")


def mean_size(tensor: Tensor) -> float:
    """Mean of the absolute values."""
    return float(tensor.abs().mean(dtype=torch.float32))
