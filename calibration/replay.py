"""Repeat a recorded generation from its middle: stored outputs stand in for the transformer calls before a step."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from diffusers import DiffusionPipeline
from torch import Tensor, nn

from galaxydit.extrapolation import slope_ahead
from galaxydit.runtime.outputs import build_output, tensors_of
from galaxydit.runtime.recognition import transformers_of
from galaxydit.runtime.registration import HookSet, PluginHook

Forward = Callable[..., Any]


@dataclass
class Outputs:
    """The outputs of all transformer calls of a generation, in CPU memory, and the step of each call."""

    tensors: list[tuple[Tensor, ...]] = field(default_factory=list)
    steps: Sequence[int] = ()  # filled after the generation
    kind: type = tuple

    def keep(self, forward: Forward, *args: Any, **kwargs: Any) -> Any:
        output = forward(*args, **kwargs)
        self.tensors.append(tuple(tensor.detach().cpu() for tensor in tensors_of(output)))
        self.kind = type(output)
        return output


class Replay:
    """Answers transformer calls: stored outputs before step `start`, order 1 in the steps `reused`, else the model.

    Order 1 extrapolates the last two full steps. The calls of a step are matched by their place within it.
    """

    def __init__(self, kept: Outputs, sigmas: Sequence[float], start: int, reused: Collection[int]) -> None:
        self.kept, self.sigmas, self.start, self.reused = kept, sigmas, start, reused
        self.calls = 0
        self.full: dict[int, list[tuple[int, tuple[Tensor, ...]]]] = {}  # by the call's place

    def answer(self, forward: Forward, *args: Any, **kwargs: Any) -> Any:
        call, self.calls = self.calls, self.calls + 1
        step = self.kept.steps[call]
        full = self.full.setdefault(call - self.kept.steps.index(step), [])
        if step in self.reused:
            (older, before), (newest, last) = full
            ahead = slope_ahead(self.sigmas[step], self.sigmas[newest], self.sigmas[older])
            predicted = tuple(b + ahead * (b - a) for a, b in zip(before, last, strict=True))
            return build_output(predicted, self.kept.kind)
        if step < self.start:
            device = next(value.device for value in (*args, *kwargs.values()) if isinstance(value, Tensor))
            tensors = tuple(tensor.to(device) for tensor in self.kept.tensors[call])
            output = build_output(tensors, self.kept.kind)
        else:
            output = forward(*args, **kwargs)
            tensors = tensors_of(output)
        self.full[call - self.kept.steps.index(step)] = [*full, (step, tensors)][-2:]
        return output


class _Hook(PluginHook):
    name = "galaxydit_replay"

    def __init__(self, answer: Callable[..., Any]) -> None:
        super().__init__()
        self.answer = answer

    def new_forward(self, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        forward = self.fn_ref.original_forward
        return forward(*args, **kwargs) if self.removed else self.answer(forward, *args, **kwargs)


@contextmanager
def answering(pipe: DiffusionPipeline, answer: Callable[..., Any]) -> Iterator[None]:
    """Within the context, `answer(forward, *args, **kwargs)` replaces `forward` of every transformer."""
    hooks = HookSet()
    for transformer in transformers_of(pipe).values():
        hooks.add(transformer, _Hook(answer), is_root=True)
    try:
        yield
    finally:
        hooks.remove()
