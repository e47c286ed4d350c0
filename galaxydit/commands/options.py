"""Options that several commands share."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from galaxydit.errors import refusal
from galaxydit.pipelines.settings import GenerationSettings, Offload

if TYPE_CHECKING:
    from diffusers import DiffusionPipeline

Model = Annotated[
    str, typer.Option(help="wan-tiny, a published model such as wan2.1-t2v-1.3b, a local folder, or a hub id.")
]
Revision = Annotated[str | None, typer.Option(help="Branch, tag or commit on the hub.")]
Offloading = Annotated[
    Offload,
    typer.Option("--offload", help="For small GPUs: weights stay in CPU memory; sequential needs the least memory."),
]
LARGEST_SEED = 2**64 - 1  # of torch.Generator
Seed = Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Draws the initial noise.")]
Steps = Annotated[int | None, typer.Option(min=1, help="Denoising steps.")]
Guidance = Annotated[float | None, typer.Option(min=0, help="Guidance scale.")]
FlowShift = Annotated[float | None, typer.Option(help="Bends the noise levels towards noise; by default the model's.")]
Height = Annotated[int | None, typer.Option(min=1, help="Pixels.")]
Width = Annotated[int | None, typer.Option(min=1, help="Pixels.")]
Frames = Annotated[int | None, typer.Option(min=1, help="Number of frames.")]
Speedup = Annotated[
    float | None, typer.Option(min=1, help="Times less compute in the blocks; 2 if nothing else is said.")
]
MaxError = Annotated[float | None, typer.Option(help="Largest expected relative error of a reused step.")]
ProfileName = Annotated[
    str | None, typer.Option("--profile", help="A shipped profile or a file; by default the one of the model.")
]
Threshold = Annotated[
    float | None, typer.Option(min=0, help="Reuse by the proxy's own distance: larger is faster and less faithful.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def check_seed(seed: int, option: str) -> None:
    """Raise GalaxyDiTError for a seed that torch does not take."""
    if not 0 <= seed <= LARGEST_SEED:
        raise refusal(option, seed, "whole numbers from 0 to 2**64 - 1", "pass for example 0")


def check_sizes(**sizes: float | None) -> None:
    """Raise GalaxyDiTError for settings that no model allows; the names are those of `chosen_settings`."""
    GenerationSettings(**_given(**sizes))


def load_quietly(
    model: str, revision: str | None = None, device: str | None = None, offload: Offload = "none"
) -> "DiffusionPipeline":
    """The pipeline of a model. The libraries' own progress bars are turned off, because commands show theirs."""
    import diffusers
    import transformers

    from galaxydit.pipelines.loading import load_pipeline

    diffusers.logging.disable_progress_bar()
    transformers.logging.disable_progress_bar()
    pipe = load_pipeline(model, revision=revision, device=device, offload=offload)
    pipe.set_progress_bar_config(disable=True)
    return pipe


def chosen_settings(pipe: "DiffusionPipeline", **sizes: float | None) -> GenerationSettings:
    """What the makers of the model recommend, with the options that were given in its place.

    Raises GalaxyDiTError for a value that is not allowed.
    """
    from galaxydit.pipelines.published_models import recommended_settings

    return replace(recommended_settings(pipe), **_given(**sizes))


def _given(**options: float | None) -> dict[str, Any]:
    """The options that were given, under their names in GenerationSettings."""
    names = {"guidance": "guidance_scale", "frames": "num_frames"}
    return {names.get(name, name): value for name, value in options.items() if value is not None}
