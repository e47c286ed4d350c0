"""What the videos of a pipeline depend on, as plain data."""

from dataclasses import asdict
from typing import Any

from diffusers import DiffusionPipeline
from torch import nn

from galaxydit.families import transformers_of
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.profiles.fingerprint import model_of, project_weights


def conditions_of(pipe: DiffusionPipeline, settings: GenerationSettings) -> dict[str, Any]:
    """Classes, configurations, projections of all weights, dtypes and settings."""
    transformers = transformers_of(pipe)
    return {
        "pipeline": type(pipe).__name__,
        "transformers": {
            name: {**asdict(model_of(one)), "dtype": str(one.dtype)} for name, one in transformers.items()
        },
        "weights": {
            name: project_weights(part)
            for name, part in pipe.components.items()
            if isinstance(part, nn.Module) and name not in transformers
        },
        "scheduler": {name: str(value) for name, value in pipe.scheduler.config.items() if not name.startswith("_")},
        "settings": asdict(settings),
    }
