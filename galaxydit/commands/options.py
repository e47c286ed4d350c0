"""Options that several commands share."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from diffusers import DiffusionPipeline

    from galaxydit.pipelines.settings import GenerationSettings

Model = Annotated[
    str, typer.Option(help="wan-tiny, a local folder, or a hub id such as Wan-AI/Wan2.1-T2V-1.3B-Diffusers.")
]
Revision = Annotated[str | None, typer.Option(help="Branch, tag or commit on the hub.")]
Seed = Annotated[int, typer.Option(min=0, help="Draws the initial noise.")]
Steps = Annotated[int | None, typer.Option(min=1, help="Denoising steps.")]
Guidance = Annotated[float | None, typer.Option(min=0, help="Guidance scale.")]
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


def chosen_settings(
    pipe: "DiffusionPipeline",
    *,
    steps: int | None,
    guidance: float | None,
    height: int | None,
    width: int | None,
    frames: int | None,
    fps: float | None = None,
) -> "GenerationSettings":
    """What the makers of the model recommend, with the options that were given in its place.

    Raises ValueError for a value that is not allowed.
    """
    from dataclasses import replace

    from galaxydit.pipelines.settings import recommended_settings

    options = {
        "steps": steps,
        "guidance_scale": guidance,
        "height": height,
        "width": width,
        "num_frames": frames,
        "fps": fps,
    }
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    return replace(recommended_settings(pipe), **given)
