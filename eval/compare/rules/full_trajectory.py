"""Record one generation in full for the calibration of rules: latents, predictions and time embeddings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from diffusers import DiffusionPipeline
from diffusers.hooks.hooks import CacheContext
from torch import Tensor

from galaxydit.calibration.generation_observer import guidance_of
from galaxydit.eval.compare.rules.decision import CONDITIONAL, UNCONDITIONAL
from galaxydit.eval.compare.rules.forward_hooks import Forward, ModuleHook, TransformerHook, wan_transformer
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.runtime.hooks import HookSet


@dataclass
class Trajectory:
    """A generation computed in full; each list holds one float32 CPU tensor per step.

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

    @property
    def steps(self) -> int:
        return len(self.latents)

    def guided(self, step: int) -> Tensor:
        """The guided prediction, which the scheduler gets."""
        return guide({branch: outputs[step] for branch, outputs in self.outputs.items()}, self.guidance_scale)

    def residual(self, step: int, branch: str) -> Tensor:
        """Prediction - latent of one branch, which EasyCache and ERTACache reuse."""
        return self.outputs[branch][step] - self.latents[step]


def record(pipe: DiffusionPipeline, prompt: str, settings: GenerationSettings, seed: int) -> Trajectory:
    """Generate one video in full; raises GalaxyDiTError for a pipeline that rules cannot work on."""
    transformer = wan_transformer(pipe)
    trajectory = Trajectory()

    def run_transformer(context: CacheContext, forward: Forward, args: Any, kwargs: Any) -> Any:
        if context.name == CONDITIONAL:
            trajectory.latents.append(_on_cpu(args[0] if args else kwargs["hidden_states"]))
            trajectory.guidance_scale = guidance_of(pipe)
        output = forward(*args, **kwargs)
        sample = output[0] if isinstance(output, tuple) else output.sample
        trajectory.outputs.setdefault(context.name, []).append(_on_cpu(sample))
        return output

    def run_embedder(forward: Forward, args: Any, kwargs: Any) -> Any:
        embeddings = forward(*args, **kwargs)
        if len(trajectory.time_embeddings) < len(trajectory.latents):  # the same in all branches of a step
            trajectory.time_embeddings.append(_on_cpu(embeddings[0]))
            trajectory.time_projections.append(_on_cpu(embeddings[1]))
        return embeddings

    hooks = HookSet()
    hooks.add(transformer, TransformerHook(run_transformer, lambda: None))
    hooks.add(transformer.get_submodule("condition_embedder"), ModuleHook(run_embedder))
    hooks.refresh(transformer)
    try:
        trajectory.final = generate(pipe, prompt, settings, seed).latents
    finally:
        hooks.remove()
    return trajectory


def record_all(
    pipe: DiffusionPipeline, prompts: Sequence[str], settings: GenerationSettings, seed: int
) -> list[Trajectory]:
    """One recorded generation for each prompt, prompt i from the noise of seed + i."""
    return [record(pipe, prompt, settings, seed + index) for index, prompt in enumerate(prompts)]


def guide(predictions: Mapping[str, Tensor], guidance_scale: float) -> Tensor:
    """Classifier-free guidance, u + s (c - u); c alone if there is no unconditional branch."""
    conditional = predictions[CONDITIONAL]
    unconditional = predictions.get(UNCONDITIONAL)
    return conditional if unconditional is None else unconditional + guidance_scale * (conditional - unconditional)


def relative_change(tensor: Tensor, reference: Tensor) -> float:
    """Relative L1 distance: mean |tensor - reference| / mean |reference|."""
    return float((tensor - reference).abs().mean() / reference.abs().mean().clamp_min(1e-12))


def _on_cpu(tensor: Tensor) -> Tensor:
    return tensor.detach().float().cpu().clone()
