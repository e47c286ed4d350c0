"""Ablations: the shipped default with one component removed or one added.

The shipped default is `accelerate(pipe)` with the profile (calibration for a model) that is shipped for the model. The
effect of two more components shows in pairs of other methods: guidance alignment in `galaxydit paper` and `galaxydit
paper branches alone`; the placement of full steps in `searched schedule` and `uniform skip order 1`, which both run
without the correction.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from diffusers import DiffusionPipeline

from galaxydit import GalaxyDiTConfig
from galaxydit.errors import refusal
from galaxydit.eval.compare.compute_counter import only_transformer
from galaxydit.eval.compare.method import Attached, Method, Setting, geometric_grid
from galaxydit.eval.compare.methods.galaxydit_methods import AT_SPEEDUPS, accelerated, profile_identity
from galaxydit.profiles.registry import find_profile
from galaxydit.profiles.resolve import resolve
from galaxydit.request import Request


def shipped(pipe: DiffusionPipeline, **target: Any) -> GalaxyDiTConfig:
    """Return the configuration that `accelerate(pipe, **target)` would take from the model's shipped profile.

    `target` is the wanted `speedup` or `max_error`. Raises GalaxyDiTError if no profile is shipped for this model, or
    if the pipeline has two transformers.
    """
    transformer = only_transformer(pipe)
    profile, why = find_profile(transformer)
    if profile is None:
        raise refusal("profile", None, f"the profile of this model, but {why}", "run `galaxydit calibrate`")
    return resolve(pipe, Request(profile=profile, **target)).config


def _ablation(name: str, targets: Sequence[Setting] = AT_SPEEDUPS, **changed: Any) -> Method:
    """The method that runs the shipped default after replacing the fields `changed` of its `GalaxyDiTConfig`.

    `targets` are the method's settings, each with a wanted `speedup` or `max_error`.
    """

    def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> AbstractContextManager[Attached]:
        return accelerated(pipe, config=replace(shipped(pipe, **setting), **changed))

    return Method(name, lambda steps: targets, attach, identity=profile_identity)


METHODS = (
    _ablation("last full step repeated", order=0),
    _ablation("without correction", correction=False),
    _ablation("residual reused", reuse="residual"),
    _ablation("first fifth computed", warmup=0.2),
    _ablation("expected error instead of a budget", [{"max_error": value} for value in geometric_grid(0.003, 1.0, 18)]),
)
