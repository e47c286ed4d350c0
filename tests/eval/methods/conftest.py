"""One tiny pipeline with random weights, and what is asked of every policy on it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pytest
import torch
from diffusers import WanPipeline
from torch import Tensor

from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.policies.policy import Controller, Limits, Observation, Policy

STEPS = 12
FREE = Limits(warmup=0.0, keep_last=0, max_consecutive=None)


@pytest.fixture
def settings() -> GenerationSettings:
    return GenerationSettings(height=32, width=32, num_frames=5, steps=STEPS, guidance_scale=3.0)


@pytest.fixture
def latents(tiny_wan_pipeline: WanPipeline) -> Callable[..., Tensor]:
    """Generates on the tiny pipeline and returns the latents; equal seeds, equal latents."""

    def generate(**changes: object) -> Tensor:
        arguments = {
            "prompt": "a red ball moves left",
            "height": 32,
            "width": 32,
            "num_frames": 5,
            "guidance_scale": 3.0,
            "num_inference_steps": STEPS,
            "max_sequence_length": 16,
            "output_type": "latent",
            "generator": torch.Generator().manual_seed(0),
        }
        return tiny_wan_pipeline(**arguments | changes).frames

    return generate


class BlockCounter:
    """Which blocks really ran: a list of block indices for each transformer call."""

    def __init__(self, pipe: WanPipeline) -> None:
        self.calls: list[list[int]] = []
        self._hooks = ExitStack()
        self._hooks.callback(pipe.transformer.register_forward_pre_hook(lambda *_: self.calls.append([])).remove)
        for index, block in enumerate(pipe.transformer.blocks):
            # The feed-forward, because a skipped block is called and only does not run.
            self._hooks.callback(block.ffn.register_forward_pre_hook(self._adder(index)).remove)

    def _adder(self, index: int) -> Callable[..., None]:
        return lambda *_: self.calls[-1].append(index)

    def close(self) -> None:
        self._hooks.close()


@pytest.fixture
def blocks_run(tiny_wan_pipeline: WanPipeline) -> Iterator[list[list[int]]]:
    """Fills up while the pipeline runs: the blocks that really ran, for each transformer call."""
    counter = BlockCounter(tiny_wan_pipeline)
    yield counter.calls
    counter.close()


@pytest.fixture
def decided() -> Callable[..., list[bool]]:
    """Function from a policy, and a value of each step for a field of the observation, to whether each is reused."""

    def decide(policy: Policy, values: Sequence[Any], field: str = "distance", **others: Any) -> list[bool]:
        controller, reused = Controller(policy, FREE), []
        for step, value in enumerate(values):
            fields = {"distance": None, "has_history": True, **others, field: value}
            reused.append(controller.decide(Observation(step, len(values), **fields)).reuse)
        return reused

    return decide
