"""Record one batch of generations: the guided velocity of each step, the residual of the block stack, the video."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from diffusers import DiffusionPipeline
from numpy.typing import NDArray
from torch import Tensor, nn

from galaxydit.errors import refusal
from galaxydit.families import SEPARATE, blocks_of, family_of
from galaxydit.pipelines.generate import generate_batch
from galaxydit.pipelines.settings import GenerationSettings

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Trajectory:
    """A batch of generations.

    sigmas: noise levels `(steps,)`, falling.
    latents: input of the transformer at each step and the result, `(steps + 1, batch, values)`, float32 on the CPU.
    velocity: guided prediction of each step, `(steps, batch, values)`, float32 on the CPU.
    magnitude_ratio: mean over tokens of |residual| / |residual of the step before|, `(steps, branches)`; NaN at step 0.
    cosine_distance: 1 - cosine of the residuals of two adjacent steps, mean over tokens, `(steps, branches)`.
    frames: `(batch, frames, height, width, 3)` float32 in [0, 1].
    """

    sigmas: Array
    latents: Tensor
    velocity: Tensor
    magnitude_ratio: Array
    cosine_distance: Array
    frames: NDArray[np.float32]


def record(
    pipe: DiffusionPipeline, prompts: Sequence[str], seeds: Sequence[int], settings: GenerationSettings
) -> Trajectory:
    """Generate and record. Methods that are attached to the pipeline meanwhile are recorded with what they change.

    Raises GalaxyDiTError for a pipeline whose guidance branches are not separate transformer calls.
    """
    family = family_of(pipe.transformer)
    if family.branches != SEPARATE:
        expected = "a pipeline that calls its transformer once per guidance branch"
        raise refusal("model", type(pipe).__name__, expected, "measure a Wan model")
    recorder, blocks = _Recorder(settings.guidance_scale or 1.0), blocks_of(pipe.transformer, family)
    with (
        pipe.transformer.register_forward_pre_hook(recorder.enter, with_kwargs=True),
        blocks[0].register_forward_pre_hook(recorder.enter_stack),
        blocks[-1].register_forward_hook(recorder.leave_stack),
        pipe.transformer.register_forward_hook(recorder.leave),
    ):
        frames = generate_batch(pipe, prompts, seeds, settings, callback_on_step_end=recorder.end_step)
    changes = np.array(recorder.changes)
    return Trajectory(
        sigmas=np.asarray(pipe.scheduler.sigmas[:-1], dtype=np.float64),
        latents=torch.stack(recorder.latents),
        velocity=torch.stack(recorder.velocities),
        magnitude_ratio=changes[..., 0],
        cosine_distance=changes[..., 1],
        frames=frames,
    )


@dataclass
class _Recorder:
    """What the hooks write down. The first call of a step is the conditional one, as in WanPipeline."""

    guidance_scale: float
    outputs: list[Tensor] = field(default_factory=list)
    residuals: list[Tensor] = field(default_factory=list)
    previous: list[Tensor] = field(default_factory=list)
    latents: list[Tensor] = field(default_factory=list)
    velocities: list[Tensor] = field(default_factory=list)
    changes: list[list[tuple[float, float]]] = field(default_factory=list)  # ratio and distance, by step and branch
    stack_input: Tensor | None = None

    def enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not self.outputs:
            self.latents.append(_flat(args[0] if args else kwargs["hidden_states"]))

    def enter_stack(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        self.stack_input = args[0]

    def leave_stack(self, module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        assert self.stack_input is not None  # the first block has run before the last
        self.residuals.append((output - self.stack_input).float())

    def leave(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        self.outputs.append(_flat(output[0] if isinstance(output, tuple) else output.sample))

    def end_step(self, pipe: Any, step: int, timestep: Any, tensors: dict[str, Any]) -> dict[str, Any]:
        conditional, *rest = self.outputs
        guided = rest[0] + self.guidance_scale * (conditional - rest[0]) if rest else conditional
        self.velocities.append(guided)
        missing = [(math.nan, math.nan)] * len(self.outputs)
        self.changes.append([_change(*pair) for pair in zip(self.previous, self.residuals, strict=False)] or missing)
        if step == len(pipe.scheduler.timesteps) - 1:
            self.latents.append(_flat(tensors["latents"]))
        self.previous, self.residuals, self.outputs = self.residuals, [], []
        return tensors


def _change(before: Tensor, now: Tensor) -> tuple[float, float]:
    """Magnitude ratio and cosine distance of two residuals `(batch, tokens, dim)`, means over the tokens."""
    size_before, size = before.norm(dim=-1), now.norm(dim=-1)
    cosine = (now * before).sum(-1) / (size * size_before)
    return float((size / size_before).mean()), 1 - float(cosine.mean())


def _flat(tensor: Tensor) -> Tensor:
    return tensor.detach().float().flatten(1).cpu()
