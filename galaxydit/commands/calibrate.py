"""`galaxydit calibrate`: measure which proxy to watch on a model and what each speedup costs."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from galaxydit.commands.options import Frames, Guidance, Height, Model, Revision, Steps, Width, chosen_settings

if TYPE_CHECKING:
    from galaxydit.calibration.analyze import Stability
    from galaxydit.profile import Profile


def calibrate(
    model: Model,
    prompts: Annotated[Path, typer.Option(help="A text file, one prompt a line; the last ones are for verification.")],
    out: Annotated[Path, typer.Option(help="The profile to write, a JSON file.")],
    samples: Annotated[int, typer.Option(min=2, help="Full generations to record.")] = 16,
    steps: Steps = None,
    guidance: Guidance = None,
    height: Height = None,
    width: Width = None,
    frames: Frames = None,
    seed: Annotated[int, typer.Option(min=0, help="Sample i starts from the noise of seed + i.")] = 0,
    verify: Annotated[int, typer.Option(min=1, help="Prompts kept for verification.")] = 4,
    report: Annotated[Path | None, typer.Option(help="Folder for report.html and its figures.")] = None,
    analyze: Annotated[bool, typer.Option("--analyze", help="Also show how far the profile carries over.")] = False,
    resume_dir: Annotated[
        Path | None, typer.Option(help="Where finished samples are kept; by default beside --out.")
    ] = None,
    revision: Revision = None,
) -> None:
    """Measure a profile for `accelerate`. Started again after a kill, it goes on where it was."""
    if out.suffix != ".json":
        raise typer.BadParameter(f"is {out}, allowed are files ending in .json", param_hint="--out")
    import diffusers
    import transformers
    from accelerate import PartialState

    from galaxydit.calibration import calibrate as run_calibration
    from galaxydit.calibration import read_prompts
    from galaxydit.commands.progress import StageProgress
    from galaxydit.pipelines.loading import load_pipeline

    texts = read_prompts(prompts)
    diffusers.logging.disable_progress_bar()
    transformers.logging.disable_progress_bar()
    pipe = load_pipeline(model, revision=revision)
    pipe.set_progress_bar_config(disable=True)
    settings = chosen_settings(pipe, steps=steps, guidance=guidance, height=height, width=width, frames=frames)
    folder = resume_dir or out.with_suffix(".parts")
    stability: Sequence[Stability] = ()
    with StageProgress() as progress:
        calibration = run_calibration(
            pipe,
            texts,
            resume_dir=folder,
            samples=samples,
            settings=settings,
            seed=seed,
            verified_prompts=verify,
            name=out.stem,
            progress=progress,
        )
        if not PartialState().is_main_process:
            return
        if analyze:
            from galaxydit.calibration.analyze import analyze as measure_stability

            stability = measure_stability(
                pipe,
                calibration.profile,
                calibration.recordings,
                settings,
                progress=lambda done, total: progress("analyzing", done, total),
            )
    calibration.profile.save(out)
    console = Console()
    console.print(calibration.profile.reason, highlight=False, markup=False)
    console.print(build_table(calibration.profile))
    if stability:
        console.print(build_stability_table(stability))
    console.print(str(out), highlight=False, markup=False, soft_wrap=True)
    if report is not None:
        from galaxydit.calibration.html_report import write_report

        console.print(str(write_report(calibration, report)), highlight=False, markup=False, soft_wrap=True)


def build_table(profile: "Profile") -> Table:
    """One row for each speedup: what was asked for, what was measured, what it costs."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 0, 0, 1))
    for heading in ("speedup", "blocks", "seconds\npredicted", "seconds\nmeasured", "PSNR\ndB", "at\norder 1"):
        table.add_column(heading, justify="right", no_wrap=True)
    seconds = profile.seconds
    for index, target in enumerate(profile.targets):
        measured = seconds.measured_speedup if seconds else ()
        cells = (
            f"{target.speedup:g}x",
            f"{1 / target.compute_fraction:.2f}x" if target.compute_fraction else "",
            f"{seconds.predicted_speedup[index]:.2f}x" if seconds else "",
            f"{measured[index]:.2f}x" if index < len(measured) else "",
            f"{target.psnr_db:.2f}" if target.psnr_db is not None else "",
            f"{target.fixed_psnr_db:.2f}" if target.fixed_psnr_db is not None else "",
        )
        table.add_row(*cells)
    return table


def build_stability_table(rows: Sequence["Stability"]) -> Table:
    """How far the profile carries over, one row for each change of settings."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 0, 0, 1))
    table.add_column("change")
    for heading in ("pattern\nrho", "pattern\ndifference", "true error /\nexpected", "proxy's\nrho"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("best proxy")
    for row in rows:
        table.add_row(
            row.change,
            f"{row.pattern_rho:.2f}",
            f"{row.pattern_difference:.0%}",
            f"{row.error_ratio:.2f}",
            f"{row.proxy_rho:.2f}",
            row.best_proxy,
        )
    return table
