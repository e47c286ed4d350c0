"""Seconds of the parts of a denoising step on this device, and the speedup that follows from them."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from statistics import median
from typing import Any

import torch
from diffusers import DiffusionPipeline
from torch import nn

from galaxydit.families import blocks_of, family_of, transformers_of
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.profiles.schema import Seconds
from galaxydit.runtime.generation import synchronize

STEPS = 10


def predicted_speedup(seconds: Seconds, steps: int, full_steps: int) -> float:
    """Denoise speedup if `full_steps` of `steps` are computed, at least 1.

    A reused step is taken to cost half of `outside_blocks`, for the hooks and the extrapolation.
    """
    reused = seconds.outside_transformer + 0.5 * seconds.outside_blocks
    return steps * seconds.step / (full_steps * seconds.step + (steps - full_steps) * reused)


@contextmanager
def _call_seconds(modules: Sequence[nn.Module], device: torch.device) -> Iterator[list[float]]:
    """Yield a list that receives the seconds of every call of these modules."""
    starts: list[float] = []
    seconds: list[float] = []

    def before(module: nn.Module, inputs: Any) -> None:
        synchronize(device)
        starts.append(time.perf_counter())

    def after(module: nn.Module, inputs: Any, output: Any) -> None:
        synchronize(device)
        seconds.append(time.perf_counter() - starts.pop())

    handles = [module.register_forward_pre_hook(before) for module in modules]
    handles += [module.register_forward_hook(after) for module in modules]
    try:
        yield seconds
    finally:
        for handle in handles:
            handle.remove()


def measure_seconds(pipe: DiffusionPipeline, prompt: str, settings: GenerationSettings, seed: int) -> Seconds:
    """Time the parts of a short uncached generation after a warm-up; medians, so that outliers do not count."""
    transformers = list(transformers_of(pipe).values())
    stacks = [blocks_of(one, family_of(one)) for one in transformers]
    blocks = len(stacks[0])
    steps, device = min(settings.steps or STEPS, STEPS), pipe._execution_device
    generate(pipe, prompt, replace(settings, steps=2), seed)
    middle = [one[blocks // 2] for one in stacks]
    with _call_seconds(transformers, device) as calls, _call_seconds(middle, device) as block_calls:
        generation = generate(pipe, prompt, replace(settings, steps=steps), seed)
    block, branches = median(block_calls), max(1, len(calls) // steps)
    outside_blocks = max(0.0, median(calls) - blocks * block)
    outside_transformer = max(0.0, (generation.denoise_seconds - sum(calls)) / steps)
    step = branches * (blocks * block + outside_blocks) + outside_transformer
    return Seconds(step, block, outside_blocks, outside_transformer, predicted_speedup=(), measured_speedup=())
