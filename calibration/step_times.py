"""Seconds of the parts of a denoising step on this device, and the speedup that follows from them."""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np
import torch
from diffusers import DiffusionPipeline
from torch import nn

from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.profiles.evidence import Seconds
from galaxydit.runtime.recognition import blocks_of, family_of, transformers_of
from galaxydit.stopwatch import synchronize

STEPS = 3


def predicted_speedup(seconds: Seconds, steps: int, full_steps: int) -> float:
    """Predicted speedup of denoising, at least 1, from the seconds of `time_steps`."""
    # Assumption: hooks and extrapolation of a reused step take half of the time outside the blocks.
    reused = seconds.outside_transformer + 0.5 * seconds.outside_blocks
    return steps * seconds.step / (full_steps * seconds.step + (steps - full_steps) * reused)


@contextmanager
def _call_times(modules: Sequence[nn.Module], device: torch.device) -> Iterator[list[float]]:
    """Yield a list of the times in seconds before and after every call of `modules`, each with `device` at rest."""
    times: list[float] = []

    def note(*_: Any) -> None:
        synchronize(device)
        times.append(time.perf_counter())

    with ExitStack() as hooks:
        for module in modules:
            hooks.enter_context(module.register_forward_pre_hook(note))
            hooks.enter_context(module.register_forward_hook(note))
        yield times


@dataclass(frozen=True)
class StepTimes:
    """Seconds of a step and its parts; its joules and the peak memory in bytes, None where unknown."""

    seconds: Seconds
    joules: float | None = None
    bytes: int | None = None


def time_steps(pipe: DiffusionPipeline, prompt: str, settings: GenerationSettings, seed: int) -> StepTimes:
    """Times of a plain generation of three steps, after one of two steps that warms up."""
    transformers = list(transformers_of(pipe).values())
    stacks = [blocks_of(transformer, family_of(transformer)) for transformer in transformers]
    blocks = len(stacks[0])
    device = pipe._execution_device
    generate(pipe, prompt, replace(settings, steps=2), seed, decode=False)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    middle = [stack[blocks // 2] for stack in stacks]
    with _call_times(transformers, device) as call_times, _call_times(middle, device) as block_times:
        timed = generate(pipe, prompt, replace(settings, steps=STEPS), seed, decode=False)
    # Each call notes its beginning and its end.
    calls = np.subtract(call_times[1::2], call_times[::2]).tolist()
    block_calls = np.subtract(block_times[1::2], block_times[::2]).tolist()
    block = median(block_calls)
    branches = max(1, len(calls) // STEPS)
    outside_blocks = branches * max(0.0, median(calls) - blocks * block)
    outside_transformer = max(0.0, (timed.denoise_seconds - sum(calls)) / STEPS)
    step = branches * blocks * block + outside_blocks + outside_transformer
    return StepTimes(
        seconds=Seconds(step, block, outside_blocks, outside_transformer, predicted_speedup=(), measured_speedup=()),
        joules=None if timed.energy.denoise is None else timed.energy.denoise / STEPS,
        bytes=torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None,
    )
