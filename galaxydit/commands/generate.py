"""`galaxydit generate`: one video of any text-to-video pipeline."""

from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from galaxydit.commands import options
from galaxydit.commands.captions import WITH_CAPTIONS, warn_of_unknown_words
from galaxydit.commands.checks import check_output_file, check_prompt_inputs
from galaxydit.commands.console import show, step_bar, working


@dataclass(frozen=True)
class FileSizes(options.Sizes):
    """Options of how a video is denoised, its shape and its rate."""

    fps: Annotated[float | None, typer.Option(help="Frames per second of the file.")] = None


def generate(
    *,
    source: options.ModelOptions,
    prompt: Annotated[str, typer.Option(help="What the video shows, or JSON that also names images and videos.")],
    out: Annotated[Path, typer.Option(help="The mp4 file to write.")],
    seed: options.Seed = 0,
    sizes: FileSizes,
    request: options.Request,
    accelerate: Annotated[bool, typer.Option("--accelerate/--no-accelerate", help="Use galaxydit.")] = True,
    lossless: Annotated[bool, typer.Option("--lossless", help="Exact RGB; not every player shows it.")] = False,
) -> None:
    """Generate one video. What is not given is what the authors of the model recommend."""
    given = [f"--{name.replace('_', '-')}" for name, value in vars(request).items() if value is not None]
    if given and not accelerate:
        raise typer.BadParameter("has no effect with --no-accelerate: leave one of the two out", param_hint=given[0])
    check_prompt_inputs([prompt])
    check_output_file(out, ".mp4")
    with working(f"loading {source.model}"):
        import galaxydit
        from galaxydit.pipelines.generate import generate as generate_video
        from galaxydit.pipelines.video import save_video

        pipe = source.load()
    if source.model == WITH_CAPTIONS:
        warn_of_unknown_words(prompt, pipe.tokenizer.get_vocab())
    settings = sizes.settings_for(pipe)
    with galaxydit.accelerate(pipe, **vars(request)) if accelerate else nullcontext() as handle:
        with step_bar() as on_step:
            generation = generate_video(pipe, prompt, settings, seed, on_step=on_step)
        seconds = f"denoising {generation.denoise_seconds:.2f} s, end to end {generation.end_to_end_seconds:.2f} s"
    save_video(generation.frames, out, settings.fps, lossless=lossless)
    reports = [] if handle is None else handle.reports  # none where no step was recognised, of which a warning tells
    summary = str(reports[-1]) if reports else seconds
    show(summary, out)
