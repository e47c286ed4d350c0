"""Attach a decision rule to a pipeline: observe what the rule decides by, and reuse what was cached.

Written for WanPipeline, which calls its transformer once per guidance branch, inside `cache_context("cond")` and then
`cache_context("uncond")`.
"""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from diffusers import DiffusionPipeline
from diffusers.hooks.hooks import CacheContext
from diffusers.models.modeling_outputs import Transformer2DModelOutput
from torch import Tensor, nn

from galaxydit.calibration.generation_observer import guidance_of
from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.compare.method import Attached
from galaxydit.eval.compare.rules.decision import Rule, StepObservation, alignment
from galaxydit.eval.compare.rules.forward_hooks import Forward, ModuleHook, TransformerHook, wan_transformer
from galaxydit.families import blocks_of, family_of
from galaxydit.runtime.hooks import HookSet, PluginHook
from galaxydit.runtime.step import StepInfo, locate

Signal = Literal["latent", "time_embedding", "time_projection", "first_block"]
"""The watched tensor: the transformer's input, the time embedding before or after the projection that modulates the
blocks, or the first block's output (a reused step then runs that block)."""
Segment = tuple[int, int]
"""Indices of the first and the last block of a group, both included."""
ALL_BRANCHES = "all branches"


@dataclass(frozen=True)
class CachedOutput:
    """Latent and prediction of a branch's last full step, `(batch, channels, frames, height, width)`."""

    latent: Tensor
    output: Tensor


@dataclass(frozen=True)
class CachedResidual:
    """What the blocks of a segment added to its input in a full step; `probe`: what the first block added, if read."""

    residual: Tensor
    probe: Tensor | None


Predict = Callable[[Tensor, CachedOutput, str, int], Tensor]
"""From latent, the branch's last full step, branch and step index to the output of a reused step."""


@dataclass
class RuleState:
    """State of one generation. Rules, decisions and signals are keyed by decision scope: a branch, or ALL_BRANCHES."""

    steps: int
    shape: tuple[int, ...]
    step: int = -1
    called: set[str] = field(default_factory=set)
    rules: dict[str, Rule] = field(default_factory=dict)
    decisions: dict[str, bool] = field(default_factory=dict)
    previous_signal: dict[str, Tensor] = field(default_factory=dict)
    cached_signal: dict[str, Tensor] = field(default_factory=dict)
    slopes: dict[str, float] = field(default_factory=dict)
    outputs: dict[str, CachedOutput] = field(default_factory=dict)
    residuals: dict[str, dict[Segment, tuple[CachedResidual, ...]]] = field(default_factory=dict)

    def continues(self, branch: str, info: StepInfo, shape: tuple[int, ...]) -> bool:
        """Whether a call belongs to this generation."""
        later = info.step > self.step or (info.step == self.step and branch not in self.called)
        return later and info.steps == self.steps and shape == self.shape

    def enter(self, branch: str, step: int) -> None:
        """Begin a branch's call, and a new step if it is the first one there."""
        if step != self.step:
            self.step = step
            self.called.clear()
            self.decisions.clear()
        self.called.add(branch)

    def bytes_held(self) -> int:
        """Bytes of all cached tensors; shared storage counts once."""
        tensors = [*self.previous_signal.values(), *self.cached_signal.values()]
        tensors += [tensor for one in self.outputs.values() for tensor in (one.latent, one.output)]
        cached = [one for segments in self.residuals.values() for several in segments.values() for one in several]
        tensors += [tensor for one in cached for tensor in (one.residual, one.probe) if tensor is not None]
        storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}
        return sum(storages.values())


@dataclass
class TransformerCall:
    """The transformer call in progress; `entered` is the hidden state before the current segment."""

    state: RuleState
    branch: str
    info: StepInfo
    latent: Tensor
    reuse: bool = False
    entered: Tensor = field(init=False)
    probe: Tensor | None = None


class RuleEngine:
    """One transformer under a rule; the arguments are those of `under_rule`."""

    def __init__(
        self,
        pipe: DiffusionPipeline,
        transformer: nn.Module,
        new_rule: Callable[[], Rule],
        signal: Signal | None,
        joint: bool,
        predict: Predict | None,
        segments: Sequence[Segment],
        aligned: bool,
    ) -> None:
        self.pipe, self.transformer = pipe, transformer
        self.new_rule, self.signal, self.joint, self.predict = new_rule, signal, joint, predict
        self.aligned = aligned
        self.segment_of = {index: segment for segment in segments for index in range(segment[0], segment[1] + 1)}
        self.state: RuleState | None = None
        self._call: TransformerCall | None = None
        self._inputs = list(inspect.signature(type(transformer).forward).parameters)[1:]

    def hooks(self) -> Iterator[tuple[nn.Module, PluginHook]]:
        """The hooks to add, with the modules they belong to."""
        yield self.transformer, TransformerHook(self.run_transformer, self.end)
        if self.signal in ("time_embedding", "time_projection"):
            yield self.transformer.get_submodule("condition_embedder"), ModuleHook(self.run_embedder)
        for index in self.segment_of if self.predict is None else ():
            yield self.transformer.get_submodule(f"blocks.{index}"), ModuleHook(self._block_runner(index))

    def end(self) -> None:
        """Release the tensors of a generation that has ended."""
        self.state = None

    def run_transformer(self, context: CacheContext, forward: Forward, args: Any, kwargs: Any) -> Any:
        """The transformer's forward pass, or the predicted output of a reused step."""
        inputs = dict(zip(self._inputs, args, strict=False)) | kwargs
        call = self._enter(context, inputs["hidden_states"])
        if self.signal in (None, "latent"):
            self._decide(call, call.latent if self.signal else None)
        if call.reuse and self.predict is not None:
            sample = self.predict(call.latent, call.state.outputs[call.branch], call.branch, call.info.step)
            return (sample,) if inputs.get("return_dict") is False else Transformer2DModelOutput(sample=sample)
        self._call = call
        try:
            output = forward(*args, **kwargs)
        finally:
            self._call = None
        if not call.reuse and self.predict is not None:
            self._cache_output(call, (output[0] if isinstance(output, tuple) else output.sample).detach())
        return output

    def _enter(self, context: CacheContext, latent: Tensor) -> TransformerCall:
        info = locate(context, getattr(self.pipe, "scheduler", None), None)
        if info is None:
            raise GalaxyDiTError(
                f"pipeline={type(self.pipe).__name__} is not allowed: expected one whose calls tell their step; use a "
                "WanPipeline of diffusers 0.42"
            )
        shape = tuple(latent.shape)
        if self.state is None or not self.state.continues(context.name, info, shape):
            self.state = RuleState(info.steps, shape)
        self.state.enter(context.name, info.step)
        return TransformerCall(self.state, context.name, info, latent.detach())

    def run_embedder(self, forward: Forward, args: Any, kwargs: Any) -> Any:
        """The time embedder's forward pass, followed by the decision."""
        embeddings = forward(*args, **kwargs)
        if self._call is not None:
            self._decide(self._call, embeddings[0 if self.signal == "time_embedding" else 1].detach())
        return embeddings

    def _decide(self, call: TransformerCall, signal: Tensor | None) -> None:
        """Ask the rule once per step and scope, and set whether the call is reused."""
        state = call.state
        scope = ALL_BRANCHES if self.joint else call.branch
        if scope not in state.decisions:
            if scope not in state.rules:
                state.rules[scope] = self.new_rule()
            reuse = state.rules[scope].decide(self._observe(call, scope, signal))
            state.decisions[scope] = reuse
            if signal is not None:
                state.previous_signal[scope] = signal
                if not reuse and self.signal != "latent":
                    state.cached_signal[scope] = signal
        cached = state.outputs if self.predict is not None else state.residuals
        call.reuse = state.decisions[scope] and call.branch in cached

    def _observe(self, call: TransformerCall, scope: str, signal: Tensor | None) -> StepObservation:
        numbers: dict[str, float] = {}
        state = call.state
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

    def _cache_output(self, call: TransformerCall, output: Tensor) -> None:
        """Cache a full step's output, and measure the slope of the output over the latent."""
        state = call.state
        previous = state.outputs.get(call.branch)
        decides = not self.joint or len(state.called) == 1
        if self.signal == "latent" and previous is not None and decides:
            change = mean_size(call.latent - previous.latent)
            state.slopes[call.branch] = mean_size(output - previous.output) / max(change, 1e-12)
        state.outputs[call.branch] = CachedOutput(call.latent, output)

    def _cache_residual(self, call: TransformerCall, segment: Segment, residual: Tensor) -> None:
        segments = call.state.residuals.setdefault(call.branch, {})
        previous = segments.get(segment, ()) if self.aligned else ()
        segments[segment] = (*previous, CachedResidual(residual, call.probe))[-2:]

    def _reused(self, call: TransformerCall, segment: Segment) -> Tensor:
        """The residual of a reused segment: the last one, or with `aligned` the extrapolation of the last two."""
        cached = call.state.residuals[call.branch][segment]
        older, newest = cached[0], cached[-1]
        if call.probe is None or older.probe is None or newest.probe is None or len(cached) < 2:
            return newest.residual
        share = alignment(mean_size(call.probe - older.probe), mean_size(newest.probe - older.probe))
        return older.residual + share * (newest.residual - older.residual)

    def _block_runner(self, index: int) -> Callable[[Forward, Any, Any], Any]:
        first, last = segment = self.segment_of[index]

        def run(forward: Forward, args: Any, kwargs: Any) -> Any:
            call = self._call
            if call is None:
                return forward(*args, **kwargs)
            hidden = args[0] if args else kwargs["hidden_states"]
            if index == first:
                call.entered = hidden
            if call.reuse:
                return call.entered + self._reused(call, segment) if index == last else hidden
            output = forward(*args, **kwargs)
            if index == first and self.signal == "first_block":
                self._decide(call, output.detach())
            if index == first and self.aligned:
                call.probe = (output - hidden).detach()
            if index == last:
                self._cache_residual(call, segment, (output - call.entered).detach())
            return output

        return run


@contextmanager
def under_rule(
    pipe: DiffusionPipeline,
    new_rule: Callable[[], Rule],
    *,
    signal: Signal | None = None,
    joint: bool = True,
    predict: Predict | None = None,
    segments: Sequence[Segment] | None = None,
    aligned: bool = False,
) -> Iterator[Attached]:
    """Run a pipeline under a rule for any number of generations.

    Args:
        pipe: a WanPipeline.
        new_rule: returns a new rule for each generation and decision scope.
        signal: the tensor that the rule watches; None for a rule that decides by the step index alone.
        joint: one decision per step for all branches, made in the branch that is called first. False lets each branch
            decide for itself.
        predict: returns the output of a reused step. None reuses, for each segment, what its blocks added to its input
            at the last full step.
        segments: groups of consecutive blocks that a reused step skips; None means all blocks.
        aligned: extrapolate through the residuals of the last two full steps in proportion to the first block's change;
            needs the signal "first_block".

    Raises GalaxyDiTError for other pipelines, and for a transformer that has a cache already.
    """
    transformer = wan_transformer(pipe)
    if segments is None:
        segments = [(0, len(blocks_of(transformer, family_of(transformer))) - 1)]
    engine = RuleEngine(pipe, transformer, new_rule, signal, joint, predict, segments, aligned)
    hooks = HookSet()
    try:
        for module, hook in engine.hooks():
            hooks.add(module, hook)
        hooks.refresh(transformer)
        yield Attached(lambda: 0 if engine.state is None else engine.state.bytes_held())
    finally:
        hooks.remove()


def mean_size(tensor: Tensor) -> float:
    """Mean of the absolute values."""
    return float(tensor.abs().mean(dtype=torch.float32))
