"""`galaxydit prompt-limit`: what a schedule for each prompt could win over one for all."""

from pathlib import Path
from statistics import fmean, stdev
from typing import Annotated

import typer

from galaxydit.commands.captions import WITH_CAPTIONS, Prompts, calibration_prompts, read_or_draw_prompts
from galaxydit.commands.checks import check_model
from galaxydit.commands.options import Model, load_quietly
from galaxydit.errors import check_choice


def prompt_limit(
    model: Model = WITH_CAPTIONS,
    prompts: Prompts = "8",
    calibration: Annotated[
        Path | None, typer.Option(help="Prompts of the shared schedule; by default wan-tiny's own.", exists=True)
    ] = None,
    tune_prompts: Annotated[int, typer.Option(min=1, help="How many of them.")] = 4,
    full_steps: Annotated[int, typer.Option(min=2, help="Number of computed steps.")] = 25,
) -> None:
    """Measure what a schedule of its own could win for a prompt, over one schedule for all."""
    check_model(model)
    reserved = tuple(calibration_prompts(calibration, model, "--calibration"))
    chosen = read_or_draw_prompts(prompts, model, reserved)
    from galaxydit.eval.compare.methods.uniform_skip import full_step_counts
    from galaxydit.eval.compare.prompt_limit import prompt_limits
    from galaxydit.families import transformers_of
    from galaxydit.pipelines.settings import recommended_settings
    from galaxydit.profiles.registry import find_profile
    from galaxydit.profiles.schema import ErrorPropagation

    pipe = load_quietly(model)
    settings = recommended_settings(pipe)
    check_choice("full_steps", full_steps, full_step_counts(settings.steps or 0))
    profile, _ = find_profile(*transformers_of(pipe).values())
    propagation = ErrorPropagation() if profile is None else profile.evidence.propagation
    limits = prompt_limits(pipe, reserved[:tune_prompts], chosen, settings, full_steps, propagation)
    found = []
    for prompt, (shared, own) in zip(chosen, limits, strict=True):
        found.append((shared, own))
        typer.echo(f"{prompt}: shared {shared:.2f} dB, own {own:.2f} dB")
    gains = [own - shared for shared, own in found]
    error = f"{stdev(gains) / len(gains) ** 0.5:.2f}" if len(gains) > 1 else "unknown"
    typer.echo(
        f"shared {fmean(shared for shared, _ in found):.2f} dB, own {fmean(own for _, own in found):.2f} dB, "
        f"limit {fmean(gains):+.2f} dB (standard error {error}, {len(gains)} prompts)"
    )
