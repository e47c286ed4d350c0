"""Ablations: `accelerate(pipe)` with the model's shipped profile, with one component removed or one added.

Two more components show in pairs of methods: guidance alignment in `galaxydit paper` and `galaxydit paper branches
alone`; the placement of full steps in `searched schedule` and `uniform skip order 1`.
"""

from dataclasses import replace
from typing import Any

from diffusers import DiffusionPipeline

from galaxydit import GalaxyDiTConfig
from galaxydit.errors import refusal
from galaxydit.eval.methods.galaxydit_methods import at_speedups
from galaxydit.eval.methods.method import AttachMethod, Context, Setting, geometric_grid, method
from galaxydit.pipelines.compute_counter import only_transformer
from galaxydit.pipelines.trial import accelerated
from galaxydit.profiles.profile_registry import find_profile
from galaxydit.profiles.resolve import resolve
from galaxydit.request import Request


def shipped(pipe: DiffusionPipeline, **target: Any) -> GalaxyDiTConfig:
    """The configuration that `accelerate(pipe, **target)` takes from the shipped profile.

    Raises GalaxyDiTError without a shipped profile, and for a pipeline with two transformers.
    """
    transformer = only_transformer(pipe)
    profile, why = find_profile(transformer)
    if profile is None:
        raise refusal("profile", None, f"the profile of this model, but {why}", "run `galaxydit calibrate`")
    return resolve(pipe, Request(profile=profile, **target)).config


def changed(**options: Any) -> AttachMethod:
    """Attaches the shipped configuration with these options in place of its own."""

    def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> Context:
        return accelerated(pipe, config=replace(shipped(pipe, **setting), **options))

    return attach


def _max_errors(steps: int) -> list[Setting]:
    return [{"max_error": value} for value in geometric_grid(0.003, 1.0, 18)]


method("last full step repeated", "ablation", at_speedups)(changed(order=0))
method("without correction", "ablation", at_speedups)(changed(correction=False))
method("residual reused", "ablation", at_speedups)(changed(reuse="residual"))
method("first fifth computed", "ablation", at_speedups)(changed(warmup=0.2))
method("expected error instead of a budget", "ablation", _max_errors)(changed())
