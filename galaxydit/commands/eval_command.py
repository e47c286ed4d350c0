"""`galaxydit eval`: make the videos of a job, and show the status, report, tables and gates of the run."""

from collections.abc import Iterator
from importlib.resources import files
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from galaxydit.commands.argument_checks import check_lasting, check_record
from galaxydit.commands.check_command import check
from galaxydit.commands.conclusion import NextCommand, conclude
from galaxydit.commands.console import say, show, show_json
from galaxydit.commands.exit_codes import ExitCode
from galaxydit.commands.grouping import RayCommand, grouped
from galaxydit.commands.help_sections import SectionedGroup
from galaxydit.commands.jobs import JobOptions, make_videos, refuse_json_of_plan, show_plan
from galaxydit.commands.options import AsJson, Force, PluginOptions, Record, RunPath
from galaxydit.commands.vbench_command import app as vbench
from galaxydit.pipelines.own_files import check_replaceable, own_csv, own_html, own_parquet

if TYPE_CHECKING:
    from galaxydit.eval.report.read_run import Run

app = typer.Typer(
    cls=SectionedGroup, help="Evaluate many prompts in many variants.", no_args_is_help=True, rich_markup_mode=None
)

SHOWN_FAILURES = 10
Verify = Annotated[bool, typer.Option("--verify", help="Compare the SHA-256 of every video, not only its size.")]


def _show_file(option: typer.CallbackParam, wanted: bool) -> None:
    """Show the file that the option names, example.toml or protocol.toml, and exit."""
    if wanted:
        name = f"{option.opts[0].removeprefix('--')}.toml"
        show(files("galaxydit.eval.jobs").joinpath(name).read_text(encoding="utf-8").rstrip())
        raise typer.Exit


def run(
    *,
    plugins: PluginOptions,
    job: Annotated[Path, typer.Argument(help="A job file, TOML.")],
    out: Annotated[str, typer.Option(help="Folder of the run, or an address such as s3://bucket/run.")],
    making: JobOptions,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Make failed units again.")] = False,
    verify: Verify = False,
    record: Record = None,
    as_json: AsJson = False,
    _example: Annotated[
        bool, typer.Option("--example", callback=_show_file, is_eager=True, help="Show a job file with every key.")
    ] = False,
    _protocol: Annotated[
        bool,
        typer.Option(
            "--protocol", callback=_show_file, is_eager=True, help="Show a fixed protocol: prompts by hash, gates."
        ),
    ] = False,
) -> None:
    """Make the missing and damaged videos of a job. The same command resumes an interrupted run; a job file with new
    variants, prompts or seeds extends the run.
    """
    from galaxydit.eval.jobs.jobfile import read_job

    check_lasting(out)
    check_record(record, making.ray)
    refuse_json_of_plan(making, as_json=as_json)
    say(f"{job}: starting")
    read = read_job(job)
    if making.dry_run:
        show_plan(read, out, making, retry_failed=retry_failed, verify=verify)
        show("nothing was made")
        return
    outcome = make_videos(read, out, making, retry_failed=retry_failed, verify=verify, record=record)
    if as_json:
        show_json({"run": out, "done": outcome.done, "failed": outcome.failed})
    else:
        limits = [] if read.gates.min or read.gates.max else ["--min", "psnr=30"]
        following = [
            NextCommand("see the videos and means of each variant", ["eval", "report", out]),
            NextCommand("check them against limits", ["eval", "check", out, *limits]),
        ]
        text = f"Videos of this job: {outcome.done} done, {outcome.failed} failed."
        conclude([f"{out}/files"], text, *following)
    if outcome.failed:
        raise typer.Exit(ExitCode.FAILED)


def status(run: RunPath, verify: Verify = False, as_json: AsJson = False) -> None:
    """Show how far a run is. Failed units and damaged videos have their reasons."""
    from galaxydit.eval.jobs.run_job import load_run
    from galaxydit.pipelines.runs import Record, not_checked
    from galaxydit.pipelines.runs.progress import render
    from galaxydit.pipelines.runs.tally import tally

    store, job = load_run(run)
    units = [unit.id for unit in job.units()]
    reasons: dict[str, str] = {}
    known: list[Record] = []

    def sound() -> Iterator[Record]:
        for unit_id, record, damage in store.survey(units, wholly=verify):
            if record is None or damage:
                reasons[unit_id] = f"damaged, the same `galaxydit eval run` makes it again: {damage}"
                continue
            if record.traceback is not None:
                reasons[unit_id] = record.reason
            known.append(record)
            yield record

    counted = tally(sound(), len(units))
    if as_json:
        numbers = {name: getattr(counted, name) for name in ("total", "done", "failed", "remaining")}
        unchecked = sum(not record.is_checked for record in known)
        show_json(numbers | {"not_checked": unchecked, "reasons": reasons})
        return
    shown = (f"{unit_id}: {reason}" for unit_id, reason in islice(reasons.items(), SHOWN_FAILURES))
    show(render(counted), *shown)
    if len(reasons) > SHOWN_FAILURES:
        show(f"and {len(reasons) - SHOWN_FAILURES} more")
    if unchecked_text := not_checked(known):
        show(unchecked_text)


def report(
    run: RunPath,
    out: Annotated[Path | None, typer.Option(help="The page; by default report.html in the run's folder.")] = None,
    embed: Annotated[bool | None, typer.Option(help="Carry the videos in the page; by default if small.")] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write the report of a run: one HTML page, which opens from disk."""
    from galaxydit.eval.report.page import write_page
    from galaxydit.eval.report.read_run import read_run

    finished = read_run(run)
    page = out or _folder_of(finished) / "report.html"
    check_replaceable(page, "--out", own_html, force=force)
    written = write_page(finished, page, embed)
    if as_json:
        show_json({"page": str(written)})
        return
    gates = finished.job.gates
    limits = [] if gates.min or gates.max else ["--min", "psnr=30"]
    text = "The page opens in any browser, from disk; the best and the worst videos of each variant are in it."
    conclude([written], text, NextCommand("check the run against limits", ["eval", "check", run, *limits]))


def export(
    run: RunPath,
    parquet: Annotated[bool, typer.Option(help="Also write results.parquet; needs pyarrow.")] = True,
    out: Annotated[Path | None, typer.Option(help="Folder of the tables; by default the run's.")] = None,
    force: Force = False,
) -> None:
    """Write the results of a run as tables. One row for each video that was made, or that failed."""
    from galaxydit.eval.report.export import COLUMNS, write_csv, write_parquet
    from galaxydit.eval.report.read_run import read_run

    finished = read_run(run)
    folder = out or _folder_of(finished)
    total = len(finished.job.units())
    if (absent := total - len(finished.records)) > 0:
        say(f"{absent} of {total} units are not made, or damaged, and have no row", "yellow")
    if finished.not_checked:
        say(finished.not_checked, "yellow")
    has_pyarrow = find_spec("pyarrow") is not None
    check_replaceable(folder / "results.csv", "--out", own_csv(COLUMNS), force=force)
    if parquet and has_pyarrow:
        check_replaceable(folder / "results.parquet", "--out", own_parquet, force=force)
    show(write_csv(finished, folder / "results.csv"))
    if parquet and not has_pyarrow:
        say("results.parquet is left out, because pyarrow is not installed: pip install 'galaxydit[report]'", "yellow")
    elif parquet:
        show(write_parquet(finished, folder / "results.parquet"))


def _folder_of(run: "Run") -> Path:
    if run.root is None:
        reason = f"is missing, and {run.store.root} is not on this machine: name a place here"
        raise typer.BadParameter(reason, param_hint="--out")
    return run.root


for command in (run, status, report, export, check):
    app.command(cls=RayCommand)(grouped(command))
app.add_typer(vbench, name="vbench")
