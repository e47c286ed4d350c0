"""Record generations step by step: what the transformer received and returned, for calibrations and measurements."""

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from diffusers import DiffusionPipeline
from numpy.typing import NDArray
from torch import Tensor

from galaxydit.eval.compare.rules.decision import CONDITIONAL, UNCONDITIONAL
from galaxydit.eval.compare.rules.rule_observer import EMBEDDER, check_branches
from galaxydit.families import blocks_of, family_of
from galaxydit.pipelines.generate import generate, generate_batch
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.runtime.guidance import guidance_of


@dataclass(eq=False)
class Trajectory:
    """A recorded batch of generations. Lists hold one float32 CPU tensor per step.

    Attributes:
        sigmas: noise levels `(steps,)`, falling.
        latents: inputs of the transformer, `(batch, channels, frames, height, width)`.
        outputs: predictions by branch, "cond" and with guidance "uncond", shaped like the latents.
        time_embeddings, time_projections: the time embedding before and after the projection, as the embedder returns
            them.
        residual_changes: for each step a list with a pair of numbers for each branch, "cond" first. The pair compares
            the residual of the block stack (output - input) with that at the previous step: |residual| / |previous
            residual|, and 1 - cosine of the two, each a mean over the batch and its tokens. NaN at the first step;
            empty if residuals were not recorded.
        final: the denoised latents.
        frames: the decoded videos, `(batch, frames, height, width, 3)` float32 in [0, 1].
        guidance_scale: of classifier-free guidance; 1 without guidance.
    """

    sigmas: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    latents: list[Tensor] = field(default_factory=list)
    outputs: dict[str, list[Tensor]] = field(default_factory=dict)
    time_embeddings: list[Tensor] = field(default_factory=list)
    time_projections: list[Tensor] = field(default_factory=list)
    residual_changes: list[list[tuple[float, float]]] = field(default_factory=list)
    final: Tensor = field(default_factory=lambda: torch.empty(0))
    frames: NDArray[np.float32] = field(default_factory=lambda: np.zeros((0, 0, 0, 0, 3), np.float32))
    guidance_scale: float = 1.0

    @property
    def steps(self) -> int:
        return len(self.latents)

    def guided(self, step: int) -> Tensor:
        """The guided prediction, which the scheduler gets, at the step of index `step`."""
        return guide({branch: outputs[step] for branch, outputs in self.outputs.items()}, self.guidance_scale)

    def residual(self, step: int, branch: str) -> Tensor:
        """Prediction - latent of one branch at the step of index `step`; EasyCache and ERTACache reuse it."""
        return self.outputs[branch][step] - self.latents[step]


def guide(outputs: Mapping[str, Tensor], guidance_scale: float) -> Tensor:
    """The guided prediction u + s (c - u), or c without an unconditional branch.

    `outputs` holds the predictions c of the branch "cond" and u of the branch "uncond"; s is `guidance_scale`.
    """
    conditional, unconditional = outputs[CONDITIONAL], outputs.get(UNCONDITIONAL)
    return conditional if unconditional is None else unconditional + guidance_scale * (conditional - unconditional)


class _Recorder(ExitStack):
    """Hooks on the transformer that fill `trajectory` until the recorder is closed.

    `residuals` says whether the change of the block stack's residual (output - input) from step to step is recorded, in
    `Trajectory.residual_changes`. WanPipeline calls the conditional branch first in a step, so the order of the calls
    gives the branch.
    """

    def __init__(self, pipe: DiffusionPipeline, residuals: bool) -> None:
        super().__init__()
        self.pipe, self.trajectory, self.calls = pipe, Trajectory(), 0
        self.previous: dict[str, Tensor] = {}
        self.stack_input = torch.empty(0)
        transformer = pipe.transformer
        self.enter_context(transformer.register_forward_pre_hook(self._enter, with_kwargs=True))
        self.enter_context(transformer.get_submodule(EMBEDDER).register_forward_hook(self._embedded))
        if residuals:
            blocks = blocks_of(transformer, family_of(transformer))
            self.enter_context(blocks[0].register_forward_pre_hook(self._enter_stack))
            self.enter_context(blocks[-1].register_forward_hook(self._leave_stack))
        self.enter_context(transformer.register_forward_hook(self._leave))

    @property
    def branch(self) -> str:
        """The guidance branch of the transformer call under way, "cond" or "uncond"."""
        is_second = self.calls % 2 == 1 and self.trajectory.guidance_scale > 1
        return UNCONDITIONAL if is_second else CONDITIONAL

    def _enter(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.trajectory.guidance_scale = guidance_of(self.pipe)
        if not self.calls:
            self.trajectory.sigmas = np.asarray(self.pipe.scheduler.sigmas[:-1], dtype=np.float64)
        if self.branch == CONDITIONAL:
            self.trajectory.latents.append(_on_cpu(args[0] if args else kwargs["hidden_states"]))

    def _embedded(self, module: Any, args: Any, output: Any) -> None:
        if self.branch == CONDITIONAL:  # the time embeddings are the same in all branches of a step
            self.trajectory.time_embeddings.append(_on_cpu(output[0]))
            self.trajectory.time_projections.append(_on_cpu(output[1]))

    def _enter_stack(self, module: Any, args: tuple[Any, ...]) -> None:
        self.stack_input = args[0]

    def _leave_stack(self, module: Any, args: Any, output: Tensor) -> None:
        residual, before = (output - self.stack_input).float(), self.previous.get(self.branch)
        if self.branch == CONDITIONAL:
            self.trajectory.residual_changes.append([])
        change = (math.nan, math.nan) if before is None else _change(before, residual)
        self.trajectory.residual_changes[-1].append(change)
        self.previous[self.branch] = residual

    def _leave(self, module: Any, args: Any, output: Any) -> None:
        tensor = output[0] if isinstance(output, tuple) else output.sample
        self.trajectory.outputs.setdefault(self.branch, []).append(_on_cpu(tensor))
        self.calls += 1

    def end_step(self, pipe: Any, step: int, timestep: Any, tensors: dict[str, Any]) -> dict[str, Any]:
        """Callback of the pipeline after each step: keep the latents in `trajectory.final`, and return `tensors`."""
        self.trajectory.final = _on_cpu(tensors["latents"])
        return tensors


def record(
    pipe: DiffusionPipeline,
    prompts: Sequence[str],
    seeds: Sequence[int],
    settings: GenerationSettings,
    *,
    residuals: bool = False,
) -> Trajectory:
    """Generate one batch, each prompt with its seed, and record it. If a method is attached, its outputs are recorded.

    `prompts` are texts; a single prompt may also be a JSON object that names an image. `residuals` says whether the
    change of the block stack's residual (output - input) from step to step is recorded, in
    `Trajectory.residual_changes`. Raises GalaxyDiTError for a pipeline with two transformers, and for one whose
    guidance branches are not separate transformer calls.
    """
    check_branches(pipe)
    with _Recorder(pipe, residuals) as recorder:
        recorded = recorder.trajectory
        if len(prompts) == 1:  # which may name an image
            video = generate(pipe, prompts[0], settings, seeds[0])
            recorded.final, recorded.frames = video.latents, video.frames[None]
        else:
            recorded.frames = generate_batch(pipe, prompts, seeds, settings, callback_on_step_end=recorder.end_step)
    return recorded


def record_each(
    pipe: DiffusionPipeline, prompts: Sequence[str], settings: GenerationSettings, seed: int
) -> list[Trajectory]:
    """Record one generation for each prompt; prompt i starts from the noise of seed + i.

    `Trajectory.residual_changes` stays empty, all other fields are recorded.
    """
    return [record(pipe, [prompt], [seed + index], settings) for index, prompt in enumerate(prompts)]


def _change(before: Tensor, now: Tensor) -> tuple[float, float]:
    """Ratio of magnitudes (now / before) and cosine distance of two residuals `(batch, tokens, dim)`, means over the
    tokens.
    """
    size_before, size = before.norm(dim=-1), now.norm(dim=-1)
    cosine = (now * before).sum(-1) / (size * size_before)
    return float((size / size_before).mean()), 1 - float(cosine.mean())


def _on_cpu(tensor: Tensor) -> Tensor:
    return tensor.detach().float().cpu().clone()
