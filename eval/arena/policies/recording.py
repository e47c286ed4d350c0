"""What the policies' calibrations look at: one generation in full, with every tensor that a policy may reuse."""

from dataclasses import dataclass, field
from typing import Any

import torch
from diffusers import DiffusionPipeline
from diffusers.hooks.hooks import CacheContext
from torch import Tensor

from galaxydit.calibration.record import guidance_of
from galaxydit.eval.arena.policies.attachment import Forward, ModuleHook, TransformerHook, wan_transformers
from galaxydit.errors import GalaxyDiTError
from galaxydit.hooks import HookSet
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.settings import GenerationSettings

CONDITIONAL, UNCONDITIONAL = "cond", "uncond"


@dataclass
class Trajectory:
    """A generation computed in full; each list has one float32 tensor on the CPU for each step.

    Attributes:
        latents: inputs of the transformer, `(batch, channels, frames, height, width)`.
        outputs: predictions by branch, "cond" and with guidance "uncond", shaped like the latents.
        time_embeddings, time_projections: the two outputs of the time embedder.
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
        """The prediction that the sampler gets: u + s (c - u)."""
        conditional = self.outputs[CONDITIONAL][step]
        if UNCONDITIONAL not in self.outputs:
            return conditional
        unconditional = self.outputs[UNCONDITIONAL][step]
        return unconditional + self.guidance_scale * (conditional - unconditional)

    def residual(self, step: int, branch: str) -> Tensor:
        """Prediction - latent of one branch: what EasyCache and ERTACache reuse."""
        return self.outputs[branch][step] - self.latents[step]


def record(pipe: DiffusionPipeline, prompt: str, settings: GenerationSettings, seed: int) -> Trajectory:
    """Generate one video in full; raises GalaxyDiTError for a pipeline with two denoising transformers."""
    transformers = wan_transformers(pipe)
    if len(transformers) > 1:
        raise GalaxyDiTError(f"{type(pipe).__name__} denoises with {len(transformers)} transformers, allowed is one")
    transformer = transformers[0]
    trajectory = Trajectory()

    def run_transformer(context: CacheContext, forward: Forward, args: Any, kwargs: Any) -> Any:
        output = forward(*args, **kwargs)
        latent = args[0] if args else kwargs["hidden_states"]
        sample = output[0] if isinstance(output, tuple) else output.sample
        if context.name == CONDITIONAL:
            trajectory.latents.append(_kept(latent))
            trajectory.guidance_scale = guidance_of(pipe)
        trajectory.outputs.setdefault(context.name, []).append(_kept(sample))
        return output

    def run_embedder(forward: Forward, args: Any, kwargs: Any) -> Any:
        embeddings = forward(*args, **kwargs)
        if len(trajectory.time_embeddings) == len(trajectory.latents):  # not yet seen in another branch of the step
            trajectory.time_embeddings.append(_kept(embeddings[0]))
            trajectory.time_projections.append(_kept(embeddings[1]))
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
    pipe: DiffusionPipeline, prompts: list[str] | tuple[str, ...], settings: GenerationSettings, seed: int
) -> list[Trajectory]:
    """One recorded generation for each prompt, prompt i from the noise of seed + i."""
    return [record(pipe, prompt, settings, seed + index) for index, prompt in enumerate(prompts)]


def relative_change(tensor: Tensor, reference: Tensor) -> float:
    """Relative L1 distance: mean |tensor - reference| / mean |reference|."""
    return float((tensor - reference).abs().mean() / reference.abs().mean().clamp_min(1e-12))


def _kept(tensor: Tensor) -> Tensor:
    return tensor.detach().float().cpu().clone()
