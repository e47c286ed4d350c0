"""`galaxydit validate`: the plugin beside controls on one model, as a page for the repository's issues."""

from pathlib import Path
from typing import Annotated

import typer

from galaxydit.commands import options
from galaxydit.commands.captions import WITH_CAPTIONS, calibration_prompts, read_or_draw_prompts
from galaxydit.commands.checks import check_output_folder, check_prompt_inputs
from galaxydit.commands.console import between_commas, say, show, show_json
from galaxydit.commands.jobs import job_keys, make_videos, show_plan


def validate(
    *,
    source: options.ModelOptions,
    out: Annotated[Path, typer.Option(help="Folder of videos and page.")],
    prompts: Annotated[
        str, typer.Option(help="A file, one prompt a line, or how many of the 10 built-in prompts.")
    ] = "10",
    runs: Annotated[str, typer.Option(help="Runs beside the plain one, with commas; by default all.")] = "",
    inputs: options.InputFiles,
    sizes: options.Sizes,
    seed: options.Seed = 0,
    dry_run: options.DryRun = False,
    price: options.Price = None,
    allow_mixed_versions: options.MixedVersions = False,
    as_json: options.AsJson = False,
    cluster: options.RayOptions,
) -> None:
    """Compare the plugin with plain videos and controls. PSNR, SSIM and LPIPS on your model, seconds and joules. The
    page is there after the first video of the plugin; after an interruption, the same command resumes.
    """
    from galaxydit.eval.validate.validation_job import RUNS, validation_job

    check_output_folder(out)
    texts = inputs.added_to(_prompts(prompts, source.model))
    check_prompt_inputs(texts)
    names = tuple(between_commas(runs) or RUNS)
    job = validation_job(job_keys(source, sizes) | {"seed": seed}, texts, names)
    show_plan(job, str(out), cluster, price=price, retry_failed=True)
    if dry_run:
        return
    from galaxydit.eval.jobs.record import BASELINE
    from galaxydit.eval.report.page import write_page
    from galaxydit.eval.report.read_run import read_run
    from galaxydit.eval.validate.validation_page import PageProgress, write_validation

    outcome = make_videos(
        job,
        str(out),
        cluster,
        retry_failed=True,
        allow_mixed_versions=allow_mixed_versions,
        first=[BASELINE, *(name for name in names if name.startswith("galaxydit"))],
        progress=PageProgress(out),
    )
    page, data = write_validation(out)
    write_page(read_run(out), out / "report.html")
    if as_json:
        show_json(data)
    else:
        show(page.read_text(encoding="utf-8"), page, out / "validation.json", out / "report.html")
    if outcome.failed:
        say(f"{outcome.failed} videos failed; the same command makes them again", "yellow")
        raise typer.Exit(1)


def _prompts(given: str, model: str) -> tuple[str, ...]:
    from galaxydit.eval.validate.validation_job import validation_prompts

    if model == WITH_CAPTIONS:
        return read_or_draw_prompts(given, model, calibration_prompts(None, model, "--calibration"))
    built_in = validation_prompts()
    if not given.isdecimal():
        return read_or_draw_prompts(given, model, ())
    if not 1 <= int(given) <= len(built_in):
        reason = f"is {given}, allowed are a file, or 1 to {len(built_in)} of the built-in prompts"
        raise typer.BadParameter(reason, param_hint="--prompts")
    return built_in[: int(given)]
