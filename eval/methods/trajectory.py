"""Record generations step by step, and tabulate values of pairs of steps, for the calibrations of compared methods."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from diffusers import DiffusionPipeline
from torch import Tensor

from galaxydit.errors import refusal
from galaxydit.eval.methods.accumulation import check_branches
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.runtime.guidance import CONDITIONAL, UNCONDITIONAL, guidance_of, guide

EMBEDDER = "condition_embedder"
LONGEST_GAP = 16  # steps; an older full step is not reused

Pairs = list[list[float]]
"""Row t holds the values of step t for the steps t - 1, t - 2, ... before it, at most LONGEST_GAP of them."""


@dataclass(eq=False)
class RecordedSteps:
    """A recorded generation. Lists hold one float32 CPU tensor per step.

    latents: inputs of the transformer, `(1, channels, frames, height, width)`; outputs: its predictions, by branch.
    time_embeddings, time_projections: the time embedding before and after the projection.
    final: the denoised latents. guidance_scale: 1 without guidance.
    """

    latents: list[Tensor] = field(default_factory=list)
    outputs: dict[str, list[Tensor]] = field(default_factory=dict)
    time_embeddings: list[Tensor] = field(default_factory=list)
    time_projections: list[Tensor] = field(default_factory=list)
    final: Tensor = field(default_factory=lambda: torch.empty(0))
    guidance_scale: float = 1.0

    @property
    def steps(self) -> int:
        return len(self.latents)

    def guided(self, step: int) -> Tensor:
        """The guided prediction of a step, which the scheduler gets."""
        outputs = {branch: outputs[step] for branch, outputs in self.outputs.items()}
        return guide(outputs[CONDITIONAL], outputs.get(UNCONDITIONAL), self.guidance_scale)

    def residual(self, step: int, branch: str) -> Tensor:
        """Prediction - latent of one branch at a step; EasyCache and ERTACache reuse it."""
        return self.outputs[branch][step] - self.latents[step]


class _Recorder(ExitStack):
    """Hooks that fill `recorded` until closed. WanPipeline calls the conditional branch first in each step."""

    def __init__(self, pipe: DiffusionPipeline) -> None:
        super().__init__()
        self.pipe, self.recorded, self.calls = pipe, RecordedSteps(), 0
        transformer = pipe.transformer
        self.enter_context(transformer.register_forward_pre_hook(self._enter, with_kwargs=True))
        self.enter_context(transformer.get_submodule(EMBEDDER).register_forward_hook(self._embedded))
        self.enter_context(transformer.register_forward_hook(self._leave))

    @property
    def branch(self) -> str:
        is_second = self.calls % 2 == 1 and self.recorded.guidance_scale > 1
        return UNCONDITIONAL if is_second else CONDITIONAL

    def _enter(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.recorded.guidance_scale = guidance_of(self.pipe)
        if self.branch == CONDITIONAL:
            self.recorded.latents.append(_on_cpu(args[0] if args else kwargs["hidden_states"]))

    def _embedded(self, module: Any, args: Any, output: Any) -> None:
        if self.branch == CONDITIONAL:  # the time embeddings are the same in all branches of a step
            self.recorded.time_embeddings.append(_on_cpu(output[0]))
            self.recorded.time_projections.append(_on_cpu(output[1]))

    def _leave(self, module: Any, args: Any, output: Any) -> None:
        tensor = output[0] if isinstance(output, tuple) else output.sample
        self.recorded.outputs.setdefault(self.branch, []).append(_on_cpu(tensor))
        self.calls += 1


def record(pipe: DiffusionPipeline, prompt: str, settings: GenerationSettings, seed: int) -> RecordedSteps:
    """Generate one video and record it, with the outputs of a method that is attached.

    Raises GalaxyDiTError for two transformers, and for guidance branches that are not separate calls.
    """
    check_branches(pipe)
    with _Recorder(pipe) as recorder:
        recorder.recorded.final = generate(pipe, prompt, settings, seed).latents
    return recorder.recorded


def record_each(
    pipe: DiffusionPipeline, prompts: Sequence[str], settings: GenerationSettings, seed: int
) -> list[RecordedSteps]:
    """One recorded generation for each prompt; prompt i starts from the noise of seed + i."""
    return [record(pipe, prompt, settings, seed + index) for index, prompt in enumerate(prompts)]


def over_pairs(steps: int, value: Callable[[int, int], float]) -> Pairs:
    """The table of `value(earlier, step)` for all pairs of `steps` steps that are at most LONGEST_GAP apart."""
    return [[value(step - gap, step) for gap in range(1, min(step, LONGEST_GAP) + 1)] for step in range(steps)]


def at(pairs: Pairs, earlier: int, step: int) -> float | None:
    """The value of a pair of steps in a table of `over_pairs`; None for a pair that it does not hold."""
    row, gap = pairs[step], step - earlier
    return row[gap - 1] if 0 < gap <= len(row) else None


def check_calibrated(steps: int, calibrated: int) -> None:
    """Raise GalaxyDiTError unless a generation has as many steps as the method's calibration."""
    if steps != calibrated:
        raise refusal("steps", steps, f"{calibrated}, the steps of the method's calibration", "calibrate it anew")


def _on_cpu(tensor: Tensor) -> Tensor:
    return tensor.detach().float().cpu().clone()
