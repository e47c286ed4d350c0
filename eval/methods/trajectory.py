"""Record generations step by step, and tabulate values of pairs of steps, for the calibrations of compared methods."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from diffusers import DiffusionPipeline
from torch import Tensor

from galaxydit import GalaxyDiTConfig, Observer, Threshold
from galaxydit.acceleration import Acceleration
from galaxydit.errors import refusal
from galaxydit.eval.methods.accumulation import check_branches
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.runtime.call import Call
from galaxydit.runtime.guidance import CONDITIONAL, UNCONDITIONAL, guide

EMBEDDER = "condition_embedder"
LONGEST_GAP = 16  # steps; an older full step is not reused

Pairs = list[list[float]]
"""Row t holds the values of step t for the steps t - 1, t - 2, ... before it, at most LONGEST_GAP of them."""


@dataclass(eq=False)
class RecordedSteps(Observer):
    """A recorded generation. Lists hold one float32 CPU tensor per step.

    latents: inputs of the transformer, `(1, channels, frames, height, width)`; outputs: its predictions, by branch.
    time_embeddings, time_projections: the time embedding before and after the projection, the same in all branches.
    final: the denoised latents. guidance_scale: 1 without guidance.
    """

    latents: list[Tensor] = field(default_factory=list)
    outputs: dict[str, list[Tensor]] = field(default_factory=dict)
    time_embeddings: list[Tensor] = field(default_factory=list)
    time_projections: list[Tensor] = field(default_factory=list)
    final: Tensor = field(default_factory=lambda: torch.empty(0))
    guidance_scale: float = 1.0

    modules = (EMBEDDER,)

    def on_module(self, call: Call, path: str, output: Any) -> None:
        if call.info.step == self.steps:
            self.guidance_scale = call.guidance_scale
            self.latents.append(_on_cpu(call.latent))
            self.time_embeddings.append(_on_cpu(output[0]))
            self.time_projections.append(_on_cpu(output[1]))

    def on_output(self, call: Call, output: Tensor) -> None:
        self.outputs.setdefault(call.branch, []).append(_on_cpu(output))

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


def record_each(
    pipe: DiffusionPipeline, prompts: Sequence[str], settings: GenerationSettings, seed: int
) -> list[RecordedSteps]:
    """One recorded generation for each prompt; prompt i starts from the noise of seed + i.

    Raises GalaxyDiTError for two transformers, and for guidance branches that are not separate calls.
    """
    check_branches(pipe)
    recordings = []
    for index, prompt in enumerate(prompts):
        recorded = RecordedSteps()
        with Acceleration(pipe, GalaxyDiTConfig(Threshold(0)), observer=recorded):
            recorded.final = generate(pipe, prompt, settings, seed + index).latents
        recordings.append(recorded)
    return recordings


def over_pairs(steps: int, value: Callable[[int, int], float]) -> Pairs:
    """The table of `value(earlier, step)` for all pairs of `steps` steps that are at most LONGEST_GAP apart."""
    pairs = []
    for step in range(steps):
        longest = min(step, LONGEST_GAP)
        pairs.append([value(step - gap, step) for gap in range(1, longest + 1)])
    return pairs


def at(pairs: Pairs, earlier: int, step: int) -> float | None:
    """The value of a pair of steps in a table of `over_pairs`; None for a pair that it does not hold."""
    row = pairs[step]
    gap = step - earlier
    if 0 < gap <= len(row):
        return row[gap - 1]
    return None


def check_calibrated(steps: int, calibrated: int) -> None:
    """Raise GalaxyDiTError unless a generation has as many steps as the method's calibration."""
    if steps != calibrated:
        raise refusal("steps", steps, f"{calibrated}, the steps of the method's calibration", "calibrate it anew")


def _on_cpu(tensor: Tensor) -> Tensor:
    return tensor.detach().float().cpu().clone()
