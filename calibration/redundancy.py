"""Similarity of the outputs of blocks and their parts between neighbouring steps (a study as in arXiv 2411.13588)."""

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

    `parts` begins with "block", the whole block; `branches` are the calls of a step; `changes`, `(branches, parts,
    blocks, steps)`, are 0 at the first step.
    """

    parts: tuple[str, ...]
    branches: tuple[str, ...]
    changes: list[list[list[list[float]]]]

    @property
    def array(self) -> Array:
        return np.array(self.changes)

    def redundant(self, branch: int, part: int, limit: float) -> float:
        """Share of outputs after the first step that changed by less than `limit`; `branch` and `part` are indices."""
        return float((self.array[branch, part, :, 1:] < limit).mean())


def measure_redundancy(pipe: DiffusionPipeline, prompt: str, settings: GenerationSettings, seed: int) -> Redundancy:
    """The changes of one full generation. Outputs are subsampled, so that memory does not grow with the video."""
    transformers = list(transformers_of(pipe).values())
    family = family_of(transformers[0])
    parts = {BLOCK: "", **family.parts}
    with _changes_of(transformers, parts) as changes:
        generate(pipe, prompt, settings, seed, decode=False)
    calls = 1 + max(call for _, call, _, _ in changes)
    steps = 1 + max(step for step, _, _, _ in changes)
    blocks = len(blocks_of(transformers[0], family))
    table = np.zeros((calls, len(parts), blocks, steps))
    for (step, call, part, block), change in changes.items():
        table[call, list(parts).index(part), block, step] = round_digits(change)
    return Redundancy(tuple(parts), tuple(f"call {call}" for call in range(calls)), table.tolist())


@contextmanager
def _changes_of(
    transformers: list[nn.Module], parts: dict[str, str]
) -> Iterator[dict[tuple[int, int, str, int], float]]:
    """Yield a dictionary that receives changes by (step, call of the step, part, block) while the transformers run."""
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
