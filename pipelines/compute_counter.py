"""Count compute independently of what a method reports.

Most caches replace a module's forward method, so a call of the module does not show that it ran. The counter therefore
observes the first layer with weights of each part of a block (in Wan: self-attention, cross-attention, feed-forward).
A call of that layer counts as the floating-point operations (matrix products and attention, as PyTorch counts them)
that its part needs in one plain call, times the ratio of the layer's input sizes (elements in this call / elements in
the plain call). Operations outside the parts are not counted. A method is one way to generate a video faster. A plain
call or generation runs without any method: every step and block is computed.
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
from galaxydit.families import blocks_of, family_of, transformers_of
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.settings import GenerationSettings

WARM_UP_STEPS = 2
CALLS_BETWEEN_READINGS = 16  # reading the held bytes takes time that counts as the method's


@dataclass(frozen=True)
class Part:
    """A part of a block, and the work that it does in one plain call of the transformer.

    Attributes:
        path: module path of the part below the transformer, such as "blocks.3.attn1".
        marker: module path of the observed layer, the first layer with weights that runs in the part.
        flops: floating-point operations of the part in the plain call.
        elements: number of elements of the marker's input in the plain call.
    """

    path: str
    marker: str
    flops: float
    elements: int


def only_transformer(pipe: DiffusionPipeline) -> nn.Module:
    """The pipeline's transformer; raises GalaxyDiTError if there are two."""
    transformers = list(transformers_of(pipe).values())
    if len(transformers) > 1:
        expected = f"a pipeline with one transformer, not {len(transformers)}"
        raise refusal("pipeline", type(pipe).__name__, expected, "compare another pipeline")
    return transformers[0]


def measure_parts(
    pipe: DiffusionPipeline, prompt: str, settings: GenerationSettings, seed: int = 0
) -> tuple[Part, ...]:
    """Return one `Part` for each measured part of every block: its operations and input size in one plain call.

    Runs a plain generation of two steps, which also warms up the pipeline. Raises GalaxyDiTError if the pipeline has
    two transformers, and ValueError if no block ran a layer with weights.
    """
    transformer = only_transformer(pipe)
    seen: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
    with transformer.register_forward_pre_hook(lambda _, *inputs: seen.append(inputs), with_kwargs=True):
        generate(pipe, prompt, replace(settings, steps=WARM_UP_STEPS), seed)
    try:
        return parts_of_call(transformer, *seen[0])
    finally:
        pipe.maybe_free_model_hooks()  # that call has brought an offloaded transformer back


def parts_of_call(transformer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Part, ...]:
    """Run `transformer(*args, **kwargs)` once and return one `Part` for each part of each block that ran.

    A `Part` holds the part's path, the first layer with weights that ran in the part, the part's operations, and the
    layer's input size. Parts that ran no such layer are left out. No method may be attached. Raises ValueError if all
    parts are left out.
    """
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
    parts = tuple(
        Part(part, layer, float(counts[f"{root}.{part}"]), elements)
        for part, (layer, elements) in first.items()
        if counts.get(f"{root}.{part}")
    )
    if not parts:
        raise ValueError(f"{root} ran no layer with weights in its blocks: it cannot be compared")
    return parts


def _layers_in_parts(transformer: nn.Module) -> Iterator[tuple[str, str, nn.Module]]:
    """Yield path of the part, path of the layer, and layer, for every layer with weights in a part of a block.

    Paths are module paths below the transformer, such as "blocks.3.attn1" and "blocks.3.attn1.to_q". A part is a direct
    child of a block. A layer with weights is a module without children whose `weight` has two dimensions or more.
    """
    names = {module: name for name, module in transformer.named_modules()}
    for block in blocks_of(transformer, family_of(transformer)):
        for part in block.children():
            for layer in part.modules():
                if not list(layer.children()) and getattr(getattr(layer, "weight", None), "ndim", 0) >= 2:
                    yield names[part], names[layer], layer


class ComputeCounter(ExitStack):
    """Context manager that counts the operations that a transformer's blocks really run, until it is closed.

    `parts` are the counted parts of the blocks, from `measure_parts`. `read_bytes` returns the bytes of the tensors
    that the attached method keeps, or None if they are unknown; it is called after every sixteenth transformer call.

    Attributes:
        flops: floating-point operations counted so far.
        bytes_held: largest result of `read_bytes`; None if `read_bytes` never returned a number.
    """

    def __init__(
        self, transformer: nn.Module, parts: tuple[Part, ...], read_bytes: Callable[[], int | None] = lambda: None
    ) -> None:
        super().__init__()
        self.flops = 0.0
        self.bytes_held: int | None = None
        self._read, self._calls = read_bytes, 0
        for part in parts:
            layer = transformer.get_submodule(part.marker)
            self.enter_context(layer.register_forward_pre_hook(partial(self._add, part)))
        self.enter_context(transformer.register_forward_hook(self._read_bytes))

    def _add(self, part: Part, layer: nn.Module, inputs: Any) -> None:
        self.flops += part.flops / part.elements * inputs[0].numel()

    def _read_bytes(self, transformer: nn.Module, inputs: Any, output: Any) -> None:
        self._calls += 1
        if self._calls % CALLS_BETWEEN_READINGS == 0 and (held := self._read()) is not None:
            self.bytes_held = max(self.bytes_held or 0, held)
