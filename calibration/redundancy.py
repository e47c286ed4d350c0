"""Similarity of the outputs of blocks and their parts between neighbouring steps (a study as in arXiv 2411.13588)."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from diffusers import DiffusionPipeline
from torch import Tensor, nn

from galaxydit.calibration.recording import Array, round_digits
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.proxies import relative_l1
from galaxydit.runtime.recognition import blocks_of, family_of, transformers_of

BLOCK = "block"
ELEMENTS = 2**16  # kept of each output


@dataclass(frozen=True)
class Redundancy:
    """Relative L1 change of the outputs of blocks and parts since the step before, in one full generation."""

    parts: tuple[str, ...]  # the first is "block", the whole block
    branches: tuple[str, ...]  # the calls of a step
    changes: list[list[list[list[float]]]]  # `(branches, parts, blocks, steps)`, 0 at the first step

    @property
    def array(self) -> Array:
        return np.array(self.changes)


def measure_redundancy(pipe: DiffusionPipeline, prompt: str, settings: GenerationSettings, seed: int) -> Redundancy:
    """The changes of one full generation. Outputs are subsampled, so that memory does not grow with the video."""
    transformers = list(transformers_of(pipe).values())
    family = family_of(transformers[0])
    parts = {BLOCK: "", **family.parts}
    with _changes_of(transformers, list(parts.values())) as changes:
        generate(pipe, prompt, settings, seed, decode=False)
    calls, _, blocks, steps = 1 + np.max(list(changes), axis=0)
    table = np.zeros((calls, len(parts), blocks, steps))
    for place, change in changes.items():
        table[place] = round_digits(change)
    return Redundancy(tuple(parts), tuple(f"call {call}" for call in range(calls)), table.tolist())


@contextmanager
def _changes_of(transformers: list[nn.Module], parts: list[str]) -> Iterator[dict[tuple[int, int, int, int], float]]:
    """Yield changes by (call of the step, part, block, step) as transformers run; `parts` are paths below a block."""
    changes: dict[tuple[int, int, int, int], float] = {}
    previous: dict[tuple[int, int, int], Tensor] = {}
    position: dict[str, Any] = {"step": -1, "call": 0, "timestep": None}

    def enter(module: nn.Module, args: Any, kwargs: Any) -> None:
        timestep = kwargs["timestep"] if "timestep" in kwargs else args[1]
        noise = float(torch.as_tensor(timestep).flatten()[0])
        is_new = noise != position["timestep"]
        position.update(step=position["step"] + is_new, call=0 if is_new else position["call"] + 1, timestep=noise)

    def receive(part: int, block: int, module: nn.Module, inputs: Any, output: Any) -> None:
        tensor = output if isinstance(output, Tensor) else output[0]
        kept = tensor.detach().flatten(1)
        kept = kept[:, :: max(1, kept[0].numel() // ELEMENTS)].float().clone()
        key = position["call"], part, block
        if key in previous and previous[key].shape == kept.shape:
            changes[*key, position["step"]] = float(relative_l1(kept, previous[key]).max())
        previous[key] = kept

    with ExitStack() as hooks:
        for transformer in transformers:
            hooks.enter_context(transformer.register_forward_pre_hook(enter, with_kwargs=True))
            for index, block in enumerate(blocks_of(transformer, family_of(transformer))):
                modules = dict(block.named_modules())  # blocks of a second list may lack some parts
                for part, path in enumerate(parts):
                    if path in modules:
                        hooks.enter_context(modules[path].register_forward_hook(partial(receive, part, index)))
        yield changes
