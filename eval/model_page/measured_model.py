"""The model that the figures are of: wan-tiny in float32, or with another transformer's weights."""

from functools import cache
from pathlib import Path
from typing import Annotated

import torch
import typer
from diffusers import DiffusionPipeline
from safetensors.torch import load_file

from galaxydit.pipelines.loading import load_pipeline
from galaxydit.pipelines.model_names import EMBEDDED

Folder = Annotated[Path, typer.Option("--model", help="Folder of a saved pipeline.")]
Weights = Annotated[
    Path | None, typer.Option("--transformer", help="File of weights to measure in place of the folder's transformer.")
]
SHIPPED = EMBEDDED["wan-tiny"]


@cache
def load_measured(folder: Path, transformer: Path | None) -> DiffusionPipeline:
    """The pipeline in float32 without progress bars, because the figures must not hold the rounding of 16 bits.

    A process loads it once.
    """
    pipe = load_pipeline(folder, dtype=torch.float32)
    pipe.set_progress_bar_config(disable=True)
    if transformer is not None:
        pipe.transformer.load_state_dict(load_file(transformer))
    return pipe
