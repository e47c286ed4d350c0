"""Seconds of the parts of a denoising step on this device, and the speedup that follows from them."""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np
import torch
from diffusers import DiffusionPipeline
from torch import nn

from galaxydit.clock import synchronize
from galaxydit.families import blocks_of, family_of, transformers_of
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.profiles.schema import Seconds

STEPS = 10


def predicted_speedup(seconds: Seconds, steps: int, full_steps: int) -> float:
    """Predicted denoise speedup in seconds, at least 1, if `full_steps` of `steps` are computed."""
    # Assumption: hooks and extrapolation of a reused step take half of the time outside the blocks.
    reused = seconds.outside_transformer + 0.5 * seconds.outside_blocks
    return steps * seconds.step / (full_steps * seconds.step + (steps - full_steps) * reused)


@contextmanager
def _call_times(modules: Sequence[nn.Module], device: torch.device) -> Iterator[list[float]]:
    """Yield a list that receives the time before and after every call of these modules."""
    times: list[float] = []

    def note(*_: Any) -> None:
        synchronize(device)
        times.append(time.perf_counter())

    with ExitStack() as hooks:
        for module in modules:
            hooks.enter_context(module.register_forward_pre_hook(note))
            hooks.enter_context(module.register_forward_hook(note))
        yield times


def measure_seconds(pipe: DiffusionPipeline, prompt: str, settings: GenerationSettings, seed: int) -> Seconds:
    """Time the parts of a short plain generation after a warm-up; medians, so that outliers do not count."""
    transformers = list(transformers_of(pipe).values())
    stacks = [blocks_of(one, family_of(one)) for one in transformers]
    blocks = len(stacks[0])
    steps, device = min(settings.steps or STEPS, STEPS), pipe._execution_device
    generate(pipe, prompt, replace(settings, steps=2), seed)
    middle = [one[blocks // 2] for one in stacks]
    with _call_times(transformers, device) as call_times, _call_times(middle, device) as block_times:
        generation = generate(pipe, prompt, replace(settings, steps=steps), seed)
    calls, block_calls = (np.subtract(times[1::2], times[::2]).tolist() for times in (call_times, block_times))
    block, branches = median(block_calls), max(1, len(calls) // steps)
    outside_blocks = branches * max(0.0, median(calls) - blocks * block)
    outside_transformer = max(0.0, (generation.denoise_seconds - sum(calls)) / steps)
    step = branches * blocks * block + outside_blocks + outside_transformer
    return Seconds(step, block, outside_blocks, outside_transformer, predicted_speedup=(), measured_speedup=())
