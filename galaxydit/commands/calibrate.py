"""`galaxydit calibrate`: measure the profile of a model."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from galaxydit.calibration.samples import split_prompts
from galaxydit.commands import options
from galaxydit.commands.captions import calibration_prompts
from galaxydit.commands.checks import check_model, check_output_file, check_output_folder, check_prompt_inputs
from galaxydit.commands.console import messages, resumable, say, show, show_json, working
from galaxydit.commands.executors import GpusPerWorker, Ray, Workers, check_ray_options, chosen_executor, load_for

if TYPE_CHECKING:
    from galaxydit.calibration.tables import TextTable


def calibrate(
    model: options.Model,
    out: Annotated[Path, typer.Option(help="The profile to write, a JSON file.")],
    prompts: Annotated[
        Path | None,
        typer.Option(
            help="A text file, one prompt a line; the last ones are held out for verification. "
            "By default wan-tiny's own captions."
        ),
    ] = None,
    samples: Annotated[int, typer.Option(min=2, help="Full generations to record.")] = 16,
    steps: options.Steps = None,
    guidance: options.Guidance = None,
    flow_shift: options.FlowShift = None,
    height: options.Height = None,
    width: options.Width = None,
    frames: options.Frames = None,
    seed: Annotated[int, typer.Option(min=0, help="Sample i starts from the noise of seed + i.")] = 0,
    verify: Annotated[int, typer.Option(min=1, help="Prompts held out for verification.")] = 4,
    report: Annotated[Path | None, typer.Option(help="Folder for report.html and its figures.")] = None,
    resume_dir: Annotated[
        Path | None, typer.Option(help="Folder of the finished parts; by default beside --out.")
    ] = None,
    as_json: options.AsJson = False,
    revision: options.Revision = None,
    offload: options.Offloading = "none",
    ray: Ray = None,
    workers: Workers = None,
    gpus_per_worker: GpusPerWorker = None,
) -> None:
    """Measure a profile for `accelerate`. Started again after an interruption, it continues where it was."""
    check_output_file(out, ".json")
    check_model(model)
    sizes = {
        "steps": steps,
        "guidance": guidance,
        "flow_shift": flow_shift,
        "height": height,
        "width": width,
        "frames": frames,
    }
    options.check_sizes(**sizes)
    check_ray_options(ray, workers, gpus_per_worker)
    if report is not None:
        check_output_folder(report, "--report")
    check_output_folder(folder := resume_dir or out.with_suffix(".parts"), "--resume-dir")
    texts = calibration_prompts(prompts, model, "--prompts")
    check_prompt_inputs(texts)
    split_prompts(texts, samples, verify, steps)
    if prompts is None:
        say(f"prompts: the {len(texts)} captions for calibration that ship with {model}")
    with working(f"loading {model}"):
        from galaxydit.calibration import calibrate as run_calibration
        from galaxydit.calibration.calibration import KIND
        from galaxydit.calibration.tables import target_table
        from galaxydit.pipelines.runs import LiveProgress, Store

        Store(folder).create(KIND, {})
        pipe, load = load_for(ray, model, revision, offload)
    settings = options.chosen_settings(pipe, **sizes)
    progress = LiveProgress(messages())
    with resumable(progress.how_far), progress, chosen_executor(ray, workers, gpus_per_worker) as executor:
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
            executor=executor,
            load=load,
        )
    calibration.profile.save(out)
    written = [out]
    if report is not None:
        from galaxydit.calibration.html_report import write_report

        written.append(write_report(calibration, report, model))
    if as_json:
        show_json({"profile": calibration.profile.to_dict()})
        return
    show(calibration.profile.evidence.reason)
    Console().print(_rich(target_table(calibration.profile)))
    show(*written)


def _rich(table: "TextTable") -> Table:
    shown = Table(box=SIMPLE_HEAD, padding=(0, 0, 0, 1))
    for index, heading in enumerate(table.headings):
        shown.add_column(heading, justify="right" if index else "left")
    for row in table.rows:
        shown.add_row(*row)
    return shown
