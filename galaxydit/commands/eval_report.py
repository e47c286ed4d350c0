"""`galaxydit eval report` and `galaxydit eval export`: what a run says, as a page and as tables."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from galaxydit.commands.console import show

if TYPE_CHECKING:
    from galaxydit.eval.report.run import Run

RunPath = Annotated[str, typer.Argument(metavar="RUN", help="The --out of a `galaxydit eval run`.")]


def report(
    run: RunPath,
    out: Annotated[Path | None, typer.Option(help="The page; by default report.html in the run's folder.")] = None,
    embed: Annotated[
        bool | None,
        typer.Option("--embed/--no-embed", help="Carry the videos inside the page; by default if they are small."),
    ] = None,
) -> None:
    """Write the report of a run: one HTML page, which opens from disk."""
    from galaxydit.eval.report.page import write_page
    from galaxydit.eval.report.run import read_run

    found = read_run(run)
    show(write_page(found, out or _folder_of(found) / "report.html", embed))


def export(
    run: RunPath,
    csv: Annotated[bool, typer.Option(help="Write results.csv.")] = True,
    parquet: Annotated[bool, typer.Option(help="Write results.parquet; needs pyarrow.")] = True,
    out: Annotated[Path | None, typer.Option(help="Folder of the tables; by default the run's.")] = None,
) -> None:
    """Write the units of a run as tables, one row each."""
    from galaxydit.eval.report.export import write_csv, write_parquet
    from galaxydit.eval.report.run import read_run

    found = read_run(run)
    folder = out or _folder_of(found)
    if csv:
        show(write_csv(found, folder / "results.csv"))
    if parquet:
        show(write_parquet(found, folder / "results.parquet"))


def _folder_of(run: "Run") -> Path:
    if run.root is None:
        raise typer.BadParameter(
            f"is missing, and {run.store.root} is not on this machine: name a place here", param_hint="--out"
        )
    return run.root
