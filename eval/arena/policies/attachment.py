"""The tensor side that the policies share: reads what a rule decides by, and reuses what was kept.

Made for WanPipeline, which calls its transformer once for each guidance branch, inside `cache_context("cond")` and then
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
from galaxydit.eval.arena.method import Attached
from galaxydit.eval.arena.policies.hooks import Forward, ModuleHook, TransformerHook, wan_transformer
from galaxydit.eval.arena.policies.rule import Rule, Seen, alignment
from galaxydit.families import blocks_of, family_of
from galaxydit.hooks import HookSet, PluginHook
from galaxydit.trajectory import StepInfo, locate

Signal = Literal["latent", "time_embedding", "time_projection", "first_block"]
"""The tensor that a rule watches: the transformer's input, one of the two outputs of the time embedder (before and
after the projection that modulates the blocks), or the first block's output, for which that block runs."""
Segment = tuple[int, int]
"""Blocks from the first index to the second one, both included."""


@dataclass(frozen=True)
class Full:
    """One branch's last full step: latent in and prediction out, `(batch, channels, frames, height, width)`."""

    latent: Tensor
    output: Tensor


@dataclass(frozen=True)
class Kept:
    """What the blocks of a segment added to its input in a full step; `probe`: what the first of them added, None where
    nobody asks for it.
    """

    residual: Tensor
    probe: Tensor | None


Predict = Callable[[Tensor, Full, str, int], Tensor]
"""The output of a reused step: from its latent, the branch's last full step, the branch and the step's index."""


@dataclass
class State:
    """What is remembered of one generation. The signal, the rules and the decisions are keyed by who decides: a branch,
    or all of them together.
    """

    steps: int
    shape: tuple[int, ...]
    step: int = -1
    seen: set[str] = field(default_factory=set)
    rules: dict[str, Rule] = field(default_factory=dict)
    decisions: dict[str, bool] = field(default_factory=dict)
    previous: dict[str, Tensor] = field(default_factory=dict)
    anchors: dict[str, Tensor] = field(default_factory=dict)
    slopes: dict[str, float] = field(default_factory=dict)
    full: dict[str, Full] = field(default_factory=dict)
    kept: dict[str, dict[Segment, tuple[Kept, ...]]] = field(default_factory=dict)

    def goes_on(self, branch: str, info: StepInfo, shape: tuple[int, ...]) -> bool:
        """Whether a call belongs to this generation."""
        later = info.step > self.step or (info.step == self.step and branch not in self.seen)
        return later and info.steps == self.steps and shape == self.shape

    def enter(self, branch: str, step: int) -> None:
        if step != self.step:
            self.step = step
            self.seen.clear()
            self.decisions.clear()
        self.seen.add(branch)

    def bytes_held(self) -> int:
        tensors = [*self.previous.values(), *self.anchors.values()]
        tensors += [tensor for full in self.full.values() for tensor in (full.latent, full.output)]
        kept = [one for segments in self.kept.values() for several in segments.values() for one in several]
        tensors += [tensor for one in kept for tensor in (one.residual, one.probe) if tensor is not None]
        storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}
        return sum(storages.values())


@dataclass
class Call:
    """The transformer call under way."""

    state: State
    branch: str
    info: StepInfo
    latent: Tensor
    reuse: bool = False
    entered: Tensor = field(init=False)
    probe: Tensor | None = None


class Policy:
    """One transformer under a policy.

    `predict` reuses the transformer's output; without it, what each of the `segments` adds to its input is reused. With
    `joint` the first branch that is called in a step decides for all.
    """

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
        self.state: State | None = None
        self._call: Call | None = None
        self._inputs = list(inspect.signature(type(transformer).forward).parameters)[1:]

    def hooks(self) -> Iterator[tuple[nn.Module, PluginHook]]:
        yield self.transformer, TransformerHook(self.run_transformer, self.end)
        if self.signal in ("time_embedding", "time_projection"):
            yield self.transformer.get_submodule("condition_embedder"), ModuleHook(self.run_embedder)
        for index in self.segment_of if self.predict is None else ():
            yield self.transformer.get_submodule(f"blocks.{index}"), ModuleHook(self._block_runner(index))

    def end(self) -> None:
        """A generation has ended: let go of its tensors."""
        self.state = None

    def run_transformer(self, context: CacheContext, forward: Forward, args: Any, kwargs: Any) -> Any:
        inputs = dict(zip(self._inputs, args, strict=False)) | kwargs
        call = self._enter(context, inputs["hidden_states"])
        if self.signal in (None, "latent"):
            self._decide(call, call.latent if self.signal else None)
        if call.reuse and self.predict is not None:
            sample = self.predict(call.latent, call.state.full[call.branch], call.branch, call.info.step)
            return (sample,) if inputs.get("return_dict") is False else Transformer2DModelOutput(sample=sample)
        self._call = call
        try:
            output = forward(*args, **kwargs)
        finally:
            self._call = None
        if not call.reuse and self.predict is not None:
            self._keep(call, (output[0] if isinstance(output, tuple) else output.sample).detach())
        return output

    def _enter(self, context: CacheContext, latent: Tensor) -> Call:
        info = locate(context, getattr(self.pipe, "scheduler", None), None)
        if info is None:
            raise GalaxyDiTError("the step of a transformer call is unknown; use a WanPipeline of diffusers 0.42")
        shape = tuple(latent.shape)
        if self.state is None or not self.state.goes_on(context.name, info, shape):
            self.state = State(info.steps, shape)
        self.state.enter(context.name, info.step)
        return Call(self.state, context.name, info, latent.detach())

    def run_embedder(self, forward: Forward, args: Any, kwargs: Any) -> Any:
        """The time embedder, whose output the rule may watch."""
        embeddings = forward(*args, **kwargs)
        if self._call is not None:
            self._decide(self._call, embeddings[0 if self.signal == "time_embedding" else 1].detach())
        return embeddings

    def _decide(self, call: Call, signal: Tensor | None) -> None:
        """Ask the rule, once a step and decider, and set whether the call is reused."""
        state = call.state
        decider = "all branches" if self.joint else call.branch
        if decider not in state.decisions:
            if decider not in state.rules:
                state.rules[decider] = self.new_rule()
            reuse = state.rules[decider].decide(self._see(call, decider, signal))
            state.decisions[decider] = reuse
            if signal is not None:
                state.previous[decider] = signal
                if not reuse and self.signal != "latent":
                    state.anchors[decider] = signal
        kept = state.full if self.predict is not None else state.kept
        call.reuse = state.decisions[decider] and call.branch in kept

    def _see(self, call: Call, decider: str, signal: Tensor | None) -> Seen:
        numbers: dict[str, float] = {}
        state = call.state
        before, anchor = state.previous.get(decider), state.anchors.get(decider)
        if signal is not None and before is not None:
            numbers["moved"], numbers["size"] = mean_size(signal - before), mean_size(before)
        if signal is not None and anchor is not None:
            numbers["drift"] = mean_size(signal - anchor) / max(mean_size(anchor), 1e-12)
        if self.signal == "latent" and call.branch in state.full:
            numbers["output_size"] = mean_size(state.full[call.branch].output)
        if call.branch in state.slopes:
            numbers["slope"] = state.slopes[call.branch]
        return Seen(call.info.step, call.info.steps, guidance_of(self.pipe), **numbers)

    def _keep(self, call: Call, output: Tensor) -> None:
        """Remember a full step's output, and how much it has moved with the latent."""
        state = call.state
        before = state.full.get(call.branch)
        decides = not self.joint or len(state.seen) == 1
        if self.signal == "latent" and before is not None and decides:
            moved = mean_size(call.latent - before.latent)
            state.slopes[call.branch] = mean_size(output - before.output) / max(moved, 1e-12)
        state.full[call.branch] = Full(call.latent, output)

    def _keep_segment(self, call: Call, segment: Segment, residual: Tensor) -> None:
        segments = call.state.kept.setdefault(call.branch, {})
        before = segments.get(segment, ()) if self.aligned else ()
        segments[segment] = (*before, Kept(residual, call.probe))[-2:]

    def _reused(self, call: Call, segment: Segment) -> Tensor:
        kept = call.state.kept[call.branch][segment]
        older, newest = kept[0], kept[-1]
        if call.probe is None or older.probe is None or newest.probe is None or len(kept) < 2:
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
                self._keep_segment(call, segment, (output - call.entered).detach())
            return output

        return run


@contextmanager
def under_policy(
    pipe: DiffusionPipeline,
    new_rule: Callable[[], Rule],
    *,
    signal: Signal | None = None,
    joint: bool = True,
    predict: Predict | None = None,
    segments: Sequence[Segment] | None = None,
    aligned: bool = False,
) -> Iterator[Attached]:
    """Run a pipeline under a policy, for any number of generations.

    Args:
        pipe: a WanPipeline.
        new_rule: makes the rule of a generation, or of each branch of it.
        signal: what the rule watches; None for a rule that goes by the step alone.
        joint: whether the branches follow one rule, told by the branch that is called first, or one each.
        predict: gives the output of a reused step. None reuses, for each segment, what its blocks added to its input
            at the last full step.
        segments: groups of neighbouring blocks that a reused step skips; None means all blocks.
        aligned: go from the last full step but one towards the last one as far as the first block has gone; needs the
            signal "first_block".

    Raises GalaxyDiTError for pipelines of other kinds, and for those that are accelerated already.
    """
    transformer = wan_transformer(pipe)
    if segments is None:
        segments = [(0, len(blocks_of(transformer, family_of(transformer))) - 1)]
    policy = Policy(pipe, transformer, new_rule, signal, joint, predict, segments, aligned)
    hooks = HookSet()
    try:
        for module, hook in policy.hooks():
            hooks.add(module, hook)
        hooks.refresh(transformer)
        yield Attached(lambda: 0 if policy.state is None else policy.state.bytes_held())
    finally:
        hooks.remove()


def mean_size(tensor: Tensor) -> float:
    """Mean of the absolute values."""
    return float(tensor.abs().mean(dtype=torch.float32))
