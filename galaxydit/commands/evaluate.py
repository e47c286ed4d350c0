"""`galaxydit eval`: batch jobs and what is made of them. A subcommand is a function in an `eval_*.py` file beside this
one and a line at the end.
"""

import signal
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from galaxydit.commands.console import resumable, say, show, show_json
from galaxydit.commands.eval_report import export, report
from galaxydit.commands.eval_vbench import vbench
from galaxydit.commands.executors import GpusPerWorker, Ray, RayCommand, Workers, check_ray_options, chosen_executor
from galaxydit.commands.options import AsJson

app = typer.Typer(help="Evaluate many prompts in many variants.", no_args_is_help=True)

SHOWN_FAILURES = 10
Verify = Annotated[bool, typer.Option("--verify", help="Compare the SHA-256 of every video, not only its size.")]


def _show_example(wanted: bool) -> None:
    if wanted:
        text = files("galaxydit.eval.jobs").joinpath("example.toml").read_text(encoding="utf-8")
        show(text.rstrip())
        raise typer.Exit


def run(
    job: Annotated[Path, typer.Argument(help="A job file, TOML.")],
    out: Annotated[str, typer.Option(help="Folder of the run, or an address such as s3://bucket/run.")],
    ray: Ray = None,
    workers: Workers = None,
    gpus_per_worker: GpusPerWorker = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Make failed units again.")] = False,
    verify: Verify = False,
    _: Annotated[
        bool, typer.Option("--example", callback=_show_example, is_eager=True, help="Show a job file with every key.")
    ] = False,
) -> None:
    """Make what is missing or damaged of a job. Give the same command again to go on."""
    check_ray_options(ray, workers, gpus_per_worker)
    from galaxydit.eval.jobs.jobfile import read_job
    from galaxydit.eval.jobs.run_job import open_run, run_job
    from galaxydit.pipelines.runs import LiveProgress

    say(f"{job}: starting")
    read = read_job(job)
    store = open_run(out, read)

    def how_far() -> str:
        units = {unit.id for unit in read.units()}
        return f"{len(units & store.unit_ids())} of {len(units)} done"

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # how schedulers end jobs
    with resumable(how_far), chosen_executor(ray, workers, gpus_per_worker) as executor:
        outcome = run_job(read, store, executor, progress=LiveProgress(), retry_failed=retry_failed, verify=verify)
    show(f"{out}: {outcome.done} done, {outcome.failed} failed")
    if outcome.failed:
        raise typer.Exit(1)


def status(
    run: Annotated[str, typer.Argument(help="The folder of a run, or its address.")],
    verify: Verify = False,
    as_json: AsJson = False,
) -> None:
    """Show how far a run is, why units failed, and which videos are damaged."""
    from galaxydit.eval.jobs.run_job import load_run
    from galaxydit.pipelines.runs import Record
    from galaxydit.pipelines.runs.progress import render, tally

    store, job = load_run(run)
    units = [unit.id for unit in job.units()]
    reasons: dict[str, str] = {}

    def sound() -> Iterator[Record]:
        for unit_id, record, damage in store.survey(units, wholly=verify):
            if record is None or damage:
                reasons[unit_id] = f"damaged, the same `galaxydit eval run` makes it again: {damage}"
                continue
            if record.traceback is not None:
                reasons[unit_id] = record.traceback.strip().splitlines()[-1]
            yield record

    console = Console()
    counted = tally(sound(), len(units))
    if as_json:
        numbers = {name: getattr(counted, name) for name in ("total", "done", "failed", "remaining")}
        show_json(numbers | {"reasons": reasons})
        return
    console.print(render(counted))
    for unit_id, reason in list(reasons.items())[:SHOWN_FAILURES]:
        console.print(f"{unit_id}: {reason}", style="red", highlight=False, markup=False, soft_wrap=True)
    if len(reasons) > SHOWN_FAILURES:
        console.print(f"and {len(reasons) - SHOWN_FAILURES} more", style="red", highlight=False)


app.command(cls=RayCommand)(run)
app.command()(status)
app.command()(report)
app.command()(export)
app.command()(vbench)
