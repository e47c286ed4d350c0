"""Count compute independently of what a method reports.

Most caches replace a module's forward method, so a call does not show that it ran. The counter observes the first layer
with weights of each part of a block (in Wan: self-attention, cross-attention, feed-forward). A call of that layer
counts as the operations that its part needs in one plain call, times the ratio of the layer's input sizes.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from diffusers import DiffusionPipeline
from torch import nn
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

from galaxydit.errors import refusal
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.memory import free_hooks
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.runtime.recognition import blocks_of, family_of, transformers_of

WARM_UP_STEPS = 2
CALLS_BETWEEN_READINGS = 16  # reading the held bytes takes time that counts as the method's


@dataclass(frozen=True)
class BlockPart:
    """A part of a block, with its operations in one plain call."""

    path: str
    marker: str  # path of the observed layer, the first with weights that runs in the part
    flops: float
    elements: int  # of the observed layer's input


def only_transformer(pipe: DiffusionPipeline) -> nn.Module:
    """The pipeline's transformer; raises GalaxyDiTError if there are two."""
    transformers = list(transformers_of(pipe).values())
    if len(transformers) > 1:
        expected = f"a pipeline with one transformer, not {len(transformers)}"
        raise refusal("pipeline", type(pipe).__name__, expected, "compare another pipeline")
    return transformers[0]


def measure_parts(
    pipe: DiffusionPipeline, prompt: str, settings: GenerationSettings, seed: int = 0
) -> tuple[BlockPart, ...]:
    """The parts of every block, from a plain generation of two steps, which also warms up the pipeline.

    Raises GalaxyDiTError for two transformers, and ValueError if no block ran a layer with weights.
    """
    transformer = only_transformer(pipe)
    seen: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
    with transformer.register_forward_pre_hook(lambda _, *inputs: seen.append(inputs), with_kwargs=True):
        generate(pipe, prompt, replace(settings, steps=WARM_UP_STEPS), seed)
    try:
        return parts_of_call(transformer, *seen[0])
    finally:
        free_hooks(pipe)  # that call has brought an offloaded transformer back


def parts_of_call(transformer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[BlockPart, ...]:
    """The parts that run in `transformer(*args, **kwargs)`, to which no method may be attached."""
    first: dict[str, tuple[str, int]] = {}

    def watch(part: str, path: str, layer: nn.Module, inputs: Any) -> None:
        first.setdefault(part, (path, inputs[0].numel()))

    cpu_attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu  # missing in PyTorch's own table
    formulas = {cpu_attention: lambda query, key, value, *_, **__: sdpa_flop_count(query, key, value)}
    counter = FlopCounterMode(display=False, custom_mapping=formulas)
    with ExitStack() as stack, torch.no_grad():
        for part, path, layer in _layers_in_parts(transformer):
            stack.enter_context(layer.register_forward_pre_hook(partial(watch, part, path)))
        stack.enter_context(counter)
        transformer(*args, **kwargs)
    root = type(transformer).__name__
    counts = {name: sum(ops.values()) for name, ops in counter.get_flop_counts().items()}
    parts = []
    for part, (path, elements) in first.items():
        operations = counts.get(f"{root}.{part}")
        if operations:
            parts.append(BlockPart(part, path, float(operations), elements))
    if not parts:
        raise ValueError(f"{root} ran no layer with weights in its blocks: it cannot be compared")
    return tuple(parts)


def _layers_in_parts(transformer: nn.Module) -> Iterator[tuple[str, str, nn.Module]]:
    """Paths of part and layer, and the layer, of every layer with a weight matrix in a direct child of a block."""
    names = {module: name for name, module in transformer.named_modules()}
    for block in blocks_of(transformer, family_of(transformer)):
        for part in block.children():
            for layer in part.modules():
                if not list(layer.children()) and getattr(getattr(layer, "weight", None), "ndim", 0) >= 2:
                    yield names[part], names[layer], layer


class ComputeCounter(ExitStack):
    """Counts the operations (`flops`) of `parts` that really run, until it is closed.

    `read_bytes` returns the bytes that the attached method keeps; `bytes_held` is the largest of its readings.
    """

    def __init__(
        self, transformer: nn.Module, parts: tuple[BlockPart, ...], read_bytes: Callable[[], int | None] = lambda: None
    ) -> None:
        super().__init__()
        self.flops = 0.0
        self.bytes_held: int | None = None
        self._read = read_bytes
        self._calls = 0
        for part in parts:
            layer = transformer.get_submodule(part.marker)
            self.enter_context(layer.register_forward_pre_hook(partial(self._add, part)))
        self.enter_context(transformer.register_forward_hook(self._read_bytes))

    def _add(self, part: BlockPart, layer: nn.Module, inputs: Any) -> None:
        self.flops += part.flops / part.elements * inputs[0].numel()

    def _read_bytes(self, transformer: nn.Module, inputs: Any, output: Any) -> None:
        self._calls += 1
        if self._calls % CALLS_BETWEEN_READINGS == 0 and (held := self._read()) is not None:
            self.bytes_held = max(self.bytes_held or 0, held)
