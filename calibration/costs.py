"""What the parts of a step cost on this device, in seconds, and the speedup that follows from them."""

import time
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from diffusers import DiffusionPipeline
from torch import nn

from galaxydit.acceleration import transformers_of
from galaxydit.families import blocks_of, family_of
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.session import synchronize

STEPS = 10


@dataclass(frozen=True)
class Costs:
    """Seconds of one step: all blocks and calls of one branch, and what lies outside the transformer.

    block: one block. outside_blocks: of one transformer call, all but its blocks. outside_transformer: of one step,
    scheduler and guidance. branches, blocks: how many of each.
    """

    block: float
    outside_blocks: float
    outside_transformer: float
    branches: int
    blocks: int

    @property
    def step(self) -> float:
        return self.branches * (self.blocks * self.block + self.outside_blocks) + self.outside_transformer

    def predicted_speedup(self, steps: int, full_steps: int, proxy_cost: float) -> float:
        """Denoise speedup with so many full steps; a reused step runs the embedding and the probe in one branch."""
        reused = self.outside_transformer + proxy_cost * self.block
        reused += 0.5 * self.outside_blocks if proxy_cost or full_steps < steps else 0.0
        return steps * self.step / (full_steps * self.step + (steps - full_steps) * reused)


class _Clock:
    """Adds up the time of a module's calls."""

    def __init__(self) -> None:
        self.calls: list[float] = []
        self._start = 0.0

    def attach(self, module: nn.Module) -> list[Any]:
        return [
            module.register_forward_pre_hook(self._before),
            module.register_forward_hook(self._after),
        ]

    def _before(self, module: nn.Module, inputs: Any) -> None:
        synchronize(next(module.parameters()).device)
        self._start = time.perf_counter()

    def _after(self, module: nn.Module, inputs: Any, output: Any) -> None:
        synchronize(next(module.parameters()).device)
        self.calls.append(time.perf_counter() - self._start)


def measure_costs(pipe: DiffusionPipeline, prompt: str, settings: GenerationSettings, seed: int) -> Costs:
    """Time the parts of a short plain generation; medians, so that a hiccup does not count."""
    transformer = transformers_of(pipe)["transformer"]
    blocks = blocks_of(transformer, family_of(transformer))
    short = replace(settings, steps=min(settings.steps or STEPS, STEPS))
    generate(pipe, prompt, replace(short, steps=2), seed)
    whole, block = _Clock(), _Clock()
    handles = [*whole.attach(transformer), *block.attach(blocks[len(blocks) // 2])]
    try:
        generation = generate(pipe, prompt, short, seed)
    finally:
        for handle in handles:
            handle.remove()
    steps = short.steps or STEPS
    branches = max(1, len(whole.calls) // steps)
    call, one_block = median(whole.calls), median(block.calls)
    return Costs(
        block=one_block,
        outside_blocks=max(0.0, call - len(blocks) * one_block),
        outside_transformer=max(0.0, (generation.denoise_seconds - sum(whole.calls)) / steps),
        branches=branches,
        blocks=len(blocks),
    )
