"""`galaxydit generate`: one video of any text-to-video pipeline."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from galaxydit.commands.options import (
    Frames,
    Guidance,
    Height,
    MaxError,
    Model,
    ProfileName,
    Revision,
    Seed,
    Speedup,
    Steps,
    Threshold,
    Width,
    chosen_settings,
)


def generate(
    model: Model,
    prompt: Annotated[str, typer.Option(help="What the video shows.")],
    out: Annotated[Path, typer.Option(help="The mp4 file to write.")],
    seed: Seed = 0,
    steps: Steps = None,
    guidance: Guidance = None,
    height: Height = None,
    width: Width = None,
    frames: Frames = None,
    fps: Annotated[float | None, typer.Option(help="Frames per second of the file.")] = None,
    speedup: Speedup = None,
    max_error: MaxError = None,
    profile: ProfileName = None,
    threshold: Threshold = None,
    accelerate: Annotated[bool, typer.Option("--accelerate/--no-accelerate", help="Use galaxydit.")] = True,
    lossless: Annotated[bool, typer.Option("--lossless", help="Exact RGB; not every player shows it.")] = False,
    revision: Revision = None,
) -> None:
    """Generate one video. What is not given is what the makers of the model recommend."""
    if out.suffix != ".mp4":
        raise typer.BadParameter(f"is {out}, allowed are files ending in .mp4", param_hint="--out")
    acceleration: dict[str, Any] = {
        "speedup": speedup,
        "max_error": max_error,
        "profile": profile,
        "threshold": threshold,
    }
    for name, value in acceleration.items():
        if value is not None and not accelerate:
            hint = f"--{name.replace('_', '-')}"
            raise typer.BadParameter("has no effect with --no-accelerate: leave one of the two out", param_hint=hint)
    from contextlib import nullcontext

    import galaxydit
    from galaxydit.pipelines.generate import generate as generate_video
    from galaxydit.pipelines.loading import load_pipeline
    from galaxydit.pipelines.video import save_video

    pipe = load_pipeline(model, revision=revision)
    settings = chosen_settings(pipe, steps=steps, guidance=guidance, height=height, width=width, frames=frames, fps=fps)
    with galaxydit.accelerate(pipe, **acceleration) if accelerate else nullcontext() as handle:
        generation = generate_video(pipe, prompt, settings, seed)
        summary = "" if handle is None else str(handle.report)
    save_video(generation.frames, out, settings.fps, lossless=lossless)
    console = Console()
    if summary:
        console.print(summary, highlight=False, markup=False)
    console.print(
        f"{out}: {generation.denoise_seconds:.2f} s denoising, {generation.end_to_end_seconds:.2f} s end to end",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
