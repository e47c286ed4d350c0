"""Similarity of the outputs of blocks and of their parts between neighbouring steps (a study as in arXiv 2411.13588).

A part is a submodule of a block, such as its self-attention. The similarity is measured as the relative L1 change from
step to step; it shows where a proxy could be read, and what a cache of single blocks or parts could save.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
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
LIMITS = (0.02, 0.05, 0.1)  # relative changes below which a block's output counts as redundant
ELEMENTS = 2**16  # kept of each output


@dataclass(frozen=True)
class Redundancy:
    """Relative L1 change of the outputs of blocks and parts since the step before, in one full generation.

    It is `galaxydit.proxies.relative_l1`: mean absolute change / mean absolute output of the step before, at most 2.

    Attributes:
        parts: "block" for the whole block, then the parts of a block by their names in `Family.parts`.
        branches: guidance branches in the order of their calls, such as ("call 0", "call 1").
        changes: `(branches, parts, blocks, steps)`; 0 at the first step, which has no step before it.
    """

    parts: tuple[str, ...]
    branches: tuple[str, ...]
    changes: tuple[tuple[tuple[tuple[float, ...], ...], ...], ...]

    @property
    def array(self) -> Array:
        """`changes` as an array."""
        return np.array(self.changes)

    def redundant(self, branch: int, part: int, limit: float) -> float:
        """Share of outputs that changed by less than `limit`, in [0, 1], over all blocks and all steps after the first.

        `limit` is a relative L1 change; `branch` and `part` are indices into `branches` and `parts`.
        """
        return float((self.array[branch, part, :, 1:] < limit).mean())


def measure_redundancy(pipe: DiffusionPipeline, prompt: str, settings: GenerationSettings, seed: int) -> Redundancy:
    """Relative L1 change of the outputs of blocks and parts from step to step in one full generation.

    The changes are by guidance branch, part, block and step. Outputs are subsampled, so that memory does not grow with
    the video. The transformer calls of a step are named "call 0", "call 1": one for each guidance branch, or "call 0"
    alone if the pipeline concatenates them. Two transformers are both observed, each at its own steps.
    """
    transformers = list(transformers_of(pipe).values())
    family = family_of(transformers[0])
    parts = {BLOCK: "", **family.parts}
    with _changes_of(transformers, parts) as changes:
        generate(pipe, prompt, settings, seed, decode=False)
    calls = 1 + max(call for _, call, _, _ in changes)
    steps = 1 + max(step for step, _, _, _ in changes)
    blocks = len(blocks_of(transformers[0], family))
    table = tuple(
        tuple(
            tuple(
                tuple(round_digits(changes.get((step, call, part, block), 0.0)) for step in range(steps))
                for block in range(blocks)
            )
            for part in parts
        )
        for call in range(calls)
    )
    return Redundancy(tuple(parts), tuple(f"call {call}" for call in range(calls)), table)


@contextmanager
def _changes_of(
    transformers: list[nn.Module], parts: dict[str, str]
) -> Iterator[dict[tuple[int, int, str, int], float]]:
    """Yield a dictionary that receives output changes by (step, call, part, block) while the transformers run.

    A change is the relative L1 change since the same call of the step before. The call is the index of the transformer
    call within its step, from 0; the block is the index into all blocks of the called transformer (`blocks_of`). Two
    transformers share these indices, because they run at different steps. `parts` maps the name of each part to its
    module path below the block, "" for the block itself.
    """
    changes: dict[tuple[int, int, str, int], float] = {}
    previous: dict[tuple[int, str, int], Tensor] = {}
    position: dict[str, Any] = {"step": -1, "call": 0, "timestep": None}

    def enter(module: nn.Module, args: Any, kwargs: Any) -> None:
        timestep = kwargs["timestep"] if "timestep" in kwargs else args[1]
        noise = float(torch.as_tensor(timestep).flatten()[0])
        is_new = noise != position["timestep"]
        position.update(step=position["step"] + is_new, call=0 if is_new else position["call"] + 1, timestep=noise)

    def receive(part: str, block: int, output: Any) -> None:
        tensor = output if isinstance(output, Tensor) else output[0]
        kept = tensor.detach().flatten(1)
        kept = kept[:, :: max(1, kept[0].numel() // ELEMENTS)].float().clone()
        key = position["call"], part, block
        if key in previous and previous[key].shape == kept.shape:
            changes[position["step"], *key] = float(relative_l1(kept, previous[key]).max())
        else:
            changes[position["step"], *key] = 0.0
        previous[key] = kept

    with ExitStack() as hooks:
        for transformer in transformers:
            hooks.enter_context(transformer.register_forward_pre_hook(enter, with_kwargs=True))
            for index, block in enumerate(blocks_of(transformer, family_of(transformer))):
                modules = dict(block.named_modules())  # blocks of a second list may lack some parts
                for part, path in parts.items():
                    if (module := modules.get(path)) is not None:
                        hooks.enter_context(
                            module.register_forward_hook(
                                lambda _, inputs, output, part=part, index=index: receive(part, index, output)
                            )
                        )
        yield changes
