"""`galaxydit generate`: one video of any text-to-video pipeline."""

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from galaxydit.commands import options
from galaxydit.commands.captions import WITH_CAPTIONS, warn_of_unknown_words
from galaxydit.commands.checks import check_acceleration, check_model, check_output_file, check_prompt_inputs
from galaxydit.commands.console import show, step_bar, working


def generate(
    model: options.Model,
    prompt: Annotated[
        str, typer.Option(help="What the video shows, or a JSON object that also names images and videos.")
    ],
    out: Annotated[Path, typer.Option(help="The mp4 file to write.")],
    seed: options.Seed = 0,
    steps: options.Steps = None,
    guidance: options.Guidance = None,
    flow_shift: options.FlowShift = None,
    height: options.Height = None,
    width: options.Width = None,
    frames: options.Frames = None,
    fps: Annotated[float | None, typer.Option(help="Frames per second of the file.")] = None,
    speedup: options.Speedup = None,
    max_error: options.MaxError = None,
    profile: options.ProfileName = None,
    threshold: options.Threshold = None,
    accelerate: Annotated[bool, typer.Option("--accelerate/--no-accelerate", help="Use galaxydit.")] = True,
    lossless: Annotated[bool, typer.Option("--lossless", help="Exact RGB; not every player shows it.")] = False,
    revision: options.Revision = None,
    offload: options.Offloading = "none",
) -> None:
    """Generate one video. What is not given is what the makers of the model recommend."""
    request: dict[str, Any] = {"speedup": speedup, "max_error": max_error, "profile": profile, "threshold": threshold}
    for name, value in request.items():
        if value is not None and not accelerate:
            hint = f"--{name.replace('_', '-')}"
            raise typer.BadParameter("has no effect with --no-accelerate: leave one of the two out", param_hint=hint)
    check_acceleration(**request)
    sizes: dict[str, Any] = dict(
        steps=steps, guidance=guidance, flow_shift=flow_shift, height=height, width=width, frames=frames, fps=fps
    )
    options.check_sizes(**sizes)
    check_model(model)
    check_prompt_inputs([prompt])
    check_output_file(out, ".mp4")
    with working(f"loading {model}"):
        import galaxydit
        from galaxydit.pipelines.generate import generate as generate_video
        from galaxydit.pipelines.video import save_video

        pipe = options.load_quietly(model, revision, offload=offload)
    if model == WITH_CAPTIONS:
        warn_of_unknown_words(prompt, pipe.tokenizer.get_vocab())
    settings = options.chosen_settings(pipe, **sizes)
    with galaxydit.accelerate(pipe, **request) if accelerate else nullcontext() as handle:
        with step_bar() as on_step:
            generation = generate_video(pipe, prompt, settings, seed, on_step=on_step)
        seconds = f"{generation.denoise_seconds:.2f} s denoising, {generation.end_to_end_seconds:.2f} s end to end"
        summary = seconds if handle is None else str(handle.report)
    save_video(generation.frames, out, settings.fps, lossless=lossless)
    show(summary, out)
