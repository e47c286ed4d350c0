"""Where a profile comes from: everything that its numbers depend on."""

import platform
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import torch
from diffusers import DiffusionPipeline

from galaxydit.calibration.recording import Recording
from galaxydit.calibration.store import hash_of
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.profile import Conditions

PACKAGES = ("galaxydit", "diffusers", "torch", "transformers", "scipy", "numpy")


def conditions_of(
    pipe: DiffusionPipeline,
    recordings: Sequence[Recording],
    settings: GenerationSettings,
    samples: Sequence[tuple[str, int]],
    seed: int,
) -> Conditions:
    """What a calibration ran under; `samples` are prompts with their seeds."""
    first = recordings[0]
    shift = settings.flow_shift if settings.flow_shift is not None else scheduler_shift(pipe)
    return Conditions(
        scheduler=type(pipe.scheduler).__name__,
        steps=first.steps,
        flow_shift=shift,
        guidance_scale=first.guidance_scale,
        latent_shape=first.latent_shape,
        dtype=str(pipe.transformer.dtype).removeprefix("torch."),
        device=device_name(pipe),
        samples=len(samples),
        seed=seed,
        prompts_sha256=hash_of([list(sample) for sample in samples]),
        versions={name: version(name) for name in PACKAGES},
        sigmas=first.sigmas,
    )


def scheduler_shift(pipe: DiffusionPipeline) -> float | None:
    """The scheduler's flow shift, or None where it has none."""
    config: Any = pipe.scheduler.config
    shift = config.get("flow_shift", config.get("shift"))
    return None if shift is None else float(shift)


def device_name(pipe: DiffusionPipeline) -> str:
    """Such as "NVIDIA H200" or "cpu x86_64"."""
    if pipe.device.type == "cuda":
        return torch.cuda.get_device_name(pipe.device)
    return f"{pipe.device.type} {platform.machine()}"
