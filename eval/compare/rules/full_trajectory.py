"""Record one generation in full for the calibration of rules: latents, predictions and time embeddings."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from diffusers import DiffusionPipeline
from torch import Tensor

from galaxydit import GalaxyDiTConfig, Observer, Threshold
from galaxydit.acceleration import Acceleration
from galaxydit.calibration.generation_observer import guidance_of
from galaxydit.eval.compare.rules.decision import CONDITIONAL, UNCONDITIONAL
from galaxydit.eval.compare.rules.rule_observer import EMBEDDER, check_branches
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.runtime.call import Call


@dataclass(eq=False)
class Trajectory(Observer):
    """Observes a generation that is computed in full; each list holds one float32 CPU tensor per step.

    Attributes:
        latents: inputs of the transformer, `(batch, channels, frames, height, width)`.
        outputs: predictions by branch, "cond" and with guidance "uncond", shaped like the latents.
        time_embeddings, time_projections: the time embedding before and after the projection.
        final: the denoised latents.
        guidance_scale: 1 without guidance.
    """

    latents: list[Tensor] = field(default_factory=list)
    outputs: dict[str, list[Tensor]] = field(default_factory=dict)
    time_embeddings: list[Tensor] = field(default_factory=list)
    time_projections: list[Tensor] = field(default_factory=list)
    final: Tensor = field(default_factory=lambda: torch.empty(0))
    guidance_scale: float = 1.0
    modules = (EMBEDDER,)

    @property
    def steps(self) -> int:
        return len(self.latents)

    def guided(self, step: int) -> Tensor:
        """The prediction that the scheduler gets: u + s (c - u), or c alone if there is no unconditional branch."""
        conditional = self.outputs[CONDITIONAL][step]
        if UNCONDITIONAL not in self.outputs:
            return conditional
        unconditional = self.outputs[UNCONDITIONAL][step]
        return unconditional + self.guidance_scale * (conditional - unconditional)

    def residual(self, step: int, branch: str) -> Tensor:
        """Prediction - latent of one branch, which EasyCache reuses."""
        return self.outputs[branch][step] - self.latents[step]

    def on_module(self, call: Call, path: str, output: Any) -> None:
        if call.branch == CONDITIONAL:  # the time embeddings are the same in all branches of a step
            self.time_embeddings.append(_on_cpu(output[0]))
            self.time_projections.append(_on_cpu(output[1]))

    def on_output(self, call: Call, output: Tensor) -> None:
        if call.branch == CONDITIONAL:
            self.latents.append(_on_cpu(call.latent))
        self.outputs.setdefault(call.branch, []).append(_on_cpu(output))


def record_all(
    pipe: DiffusionPipeline, prompts: Sequence[str], settings: GenerationSettings, seed: int
) -> list[Trajectory]:
    """One generation in full for each prompt, prompt i from the noise of seed + i.

    Raises GalaxyDiTError for a pipeline that rules cannot work on.
    """
    check_branches(pipe)
    recordings = [Trajectory() for _ in prompts]
    for index, recorded in enumerate(recordings):
        with Acceleration(pipe, GalaxyDiTConfig(Threshold(0)), observer=recorded):
            recorded.final = generate(pipe, prompts[index], settings, seed + index).latents
        recorded.guidance_scale = guidance_of(pipe)
    return recordings


def relative_change(tensor: Tensor, reference: Tensor) -> float:
    """Relative L1 distance: mean |tensor - reference| / mean |reference|."""
    return float((tensor - reference).abs().mean() / reference.abs().mean().clamp_min(1e-12))


def _on_cpu(tensor: Tensor) -> Tensor:
    return tensor.detach().float().cpu().clone()
