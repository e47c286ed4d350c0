"""Seconds of the parts of a denoising step on this device, and the speedup that follows from them."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import torch
from diffusers import DiffusionPipeline
from torch import nn

from galaxydit.families import blocks_of, family_of, transformers_of
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.runtime.generation import synchronize

STEPS = 10


@dataclass(frozen=True)
class Costs:
    """Seconds of the parts of one step.

    Attributes:
        block: one transformer block.
        outside_blocks: one transformer call without its blocks.
        outside_transformer: one step without its transformer calls, that is scheduler and guidance.
        branches: transformer calls in a step.
        blocks: blocks of the transformer.
    """

    block: float
    outside_blocks: float
    outside_transformer: float
    branches: int
    blocks: int

    @property
    def step(self) -> float:
        """Seconds of one full step."""
        return self.branches * (self.blocks * self.block + self.outside_blocks) + self.outside_transformer

    def predicted_speedup(self, steps: int, full_steps: int) -> float:
        """Denoise speedup if `full_steps` of `steps` are computed, at least 1.

        A reused step is taken to cost half of `outside_blocks`, for the hooks and the extrapolation.
        """
        reused = self.outside_transformer + 0.5 * self.outside_blocks
        return steps * self.step / (full_steps * self.step + (steps - full_steps) * reused)


class _CallTimer:
    """Times every call of some modules, in seconds."""

    def __init__(self, modules: Sequence[nn.Module], device: torch.device) -> None:
        self._device = device
        self.calls: list[float] = []
        self._start = 0.0
        self._handles = [module.register_forward_pre_hook(self._before) for module in modules]
        self._handles += [module.register_forward_hook(self._after) for module in modules]

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()

    def _before(self, module: nn.Module, inputs: Any) -> None:
        synchronize(self._device)
        self._start = time.perf_counter()

    def _after(self, module: nn.Module, inputs: Any, output: Any) -> None:
        synchronize(self._device)
        self.calls.append(time.perf_counter() - self._start)


def measure_costs(pipe: DiffusionPipeline, prompt: str, settings: GenerationSettings, seed: int) -> Costs:
    """Time the parts of a short uncached generation after a warm-up; medians, so that outliers do not count."""
    transformers = list(transformers_of(pipe).values())
    stacks = [blocks_of(one, family_of(one)) for one in transformers]
    blocks = len(stacks[0])
    short = replace(settings, steps=min(settings.steps or STEPS, STEPS))
    generate(pipe, prompt, replace(short, steps=2), seed)
    whole, block = (
        _CallTimer(modules, pipe._execution_device) for modules in (transformers, [one[blocks // 2] for one in stacks])
    )
    try:
        generation = generate(pipe, prompt, short, seed)
    finally:
        whole.remove()
        block.remove()
    steps = short.steps or STEPS
    call, one_block = median(whole.calls), median(block.calls)
    return Costs(
        block=one_block,
        outside_blocks=max(0.0, call - blocks * one_block),
        outside_transformer=max(0.0, (generation.denoise_seconds - sum(whole.calls)) / steps),
        branches=max(1, len(whole.calls) // steps),
        blocks=blocks,
    )
