"""`galaxydit eval`: batch jobs and what is made of them. A subcommand is a function in an `eval_*.py` file beside this
one and a line at the end.
"""

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from galaxydit.commands.eval_report import export, report
from galaxydit.commands.eval_vbench import vbench

app = typer.Typer(help="Evaluate many prompts in many variants.", no_args_is_help=True)

Run = Annotated[Path, typer.Argument(help="The folder of a run.")]


def run(
    job: Annotated[Path, typer.Argument(help="A job file, TOML.")],
    out: Annotated[Path, typer.Option(help="Folder of the run, shared by all processes.")],
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Make failed units again.")] = False,
    expiry: Annotated[
        float, typer.Option(min=1, help="Seconds without a sign of life after which a process has lost its unit.")
    ] = 60.0,
) -> None:
    """Make what is missing of a job. Give the same command again to go on, or elsewhere to help."""
    from galaxydit.eval.jobs.jobfile import read_job

    read = read_job(job)
    import diffusers
    import transformers

    from galaxydit.eval.jobs.rank import this_rank
    from galaxydit.eval.jobs.runner import run_job

    # Schedulers end jobs with SIGTERM: what is taken is given back at once.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    diffusers.logging.disable_progress_bar()
    transformers.logging.disable_progress_bar()
    outcome = run_job(read, job.read_text(encoding="utf-8"), out, expiry=expiry, retry_failed=retry_failed)
    is_main = this_rank().is_main
    if is_main:
        summary = f"{out}: {outcome.done} done, {outcome.failed} failed"
        Console().print(summary, highlight=False, markup=False, soft_wrap=True)
    if outcome.failed and is_main:
        raise typer.Exit(1)


def status(run: Run) -> None:
    """Show how far a run is, and why units failed."""
    from galaxydit.eval.jobs.progress import render, tally
    from galaxydit.eval.jobs.record import RunFolder
    from galaxydit.eval.jobs.run import load_job

    folder = RunFolder(run)
    job = load_job(folder)
    records = folder.records()
    console = Console()
    console.print(render(tally(records, len(job.units()))))
    for record in records:
        if record.traceback is not None:
            last = record.traceback.strip().splitlines()[-1]
            console.print(f"{record.unit}: {last}", style="red", highlight=False, markup=False, soft_wrap=True)


app.command()(run)
app.command()(status)
app.command()(report)
app.command()(export)
app.command()(vbench)
