"""`galaxydit validate`: the plugin beside controls on one model, as a page for the repository's issues."""

from pathlib import Path
from typing import Annotated

import typer

from galaxydit.commands import options
from galaxydit.commands.argument_checks import check_output_folder
from galaxydit.commands.captions import WITH_CAPTIONS, Prompts, calibration_prompts, read_or_draw_prompts
from galaxydit.commands.conclusion import NextCommand, conclude, model_arguments, size_arguments
from galaxydit.commands.console import between_commas, messages, say, show, show_json
from galaxydit.commands.exit_codes import ExitCode
from galaxydit.commands.jobs import JobOptions, job_keys, make_videos, refuse_json_of_plan, show_plan
from galaxydit.pipelines.own_files import check_replaceable, own_html, own_json, own_markdown
from galaxydit.pipelines.written_by import VALIDATION


def validate(
    *,
    plugins: options.PluginOptions,
    source: options.ModelOptions,
    out: Annotated[Path, typer.Option(help="Folder of videos and page.")],
    prompts: Prompts = "10",
    runs: Annotated[str, typer.Option(help="Runs beside the plain one, with commas; by default all.")] = "",
    inputs: options.InputFiles,
    sizes: options.Sizes,
    seed: options.Seed = 0,
    force: options.Force = False,
    as_json: options.AsJson = False,
    making: JobOptions,
) -> None:
    """Compare the plugin with plain videos and controls. PSNR, SSIM and LPIPS on your model, seconds and joules. The
    page is there after the first video of the plugin; after an interruption, the same command resumes.
    """
    from galaxydit.eval.validate.validation_job import RUNS, validation_job

    refuse_json_of_plan(making, as_json=as_json)
    check_output_folder(out)
    check_replaceable(out / "validation.md", "--out", own_markdown, force=force)
    check_replaceable(out / "validation.json", "--out", own_json(VALIDATION), force=force)
    for name in ("validation.html", "report.html"):
        check_replaceable(out / name, "--out", own_html, force=force)
    is_tiny = source.model == WITH_CAPTIONS
    reserved = calibration_prompts(None, source.model, "--calibration") if is_tiny else ()
    texts = inputs.added_to(read_or_draw_prompts(prompts, source.model, reserved))
    names = tuple(between_commas(runs) or RUNS)
    job = validation_job(job_keys(source, sizes) | {"seed": seed}, texts, names)
    console = messages() if as_json else None
    show_plan(job, str(out), making, retry_failed=True, console=console)
    if making.dry_run:
        return
    from galaxydit.eval.jobs.record import BASELINE
    from galaxydit.eval.report.page import write_page
    from galaxydit.eval.report.read_run import read_run
    from galaxydit.eval.validate.validation_page import PageProgress, markdown, write_validation

    outcome = make_videos(
        job,
        str(out),
        making,
        retry_failed=True,
        first=[BASELINE, *(name for name in names if name.startswith("galaxydit"))],
        progress=PageProgress(out, console),
    )
    page, data = write_validation(out)
    write_page(read_run(out), out / "report.html")
    if as_json:
        show_json(out / "validation.json")
    else:
        show(markdown(data))
        made = (page, out / "validation.json", out / "validation.html", out / "report.html")
        text = f"{page.name} compares the plugin with the plain videos and can be pasted into an issue as it is."
        calibrate = ["calibrate", *model_arguments(source), "--out", "profile.json", *size_arguments(sizes)]
        conclude(made, text, NextCommand("measure a profile, which chooses better steps", calibrate))
    if outcome.failed:
        say(f"{outcome.failed} videos failed; the same command makes them again", "yellow")
        raise typer.Exit(ExitCode.FAILED)
