"""`galaxydit eval report` and `galaxydit eval export`: what a run says, as a page and as tables."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run, the --out of `galaxydit eval run`.")]


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

    _show(write_page(read_run(run), out or run / "report.html", embed))


def export(
    run: RunPath,
    csv: Annotated[bool, typer.Option(help="Write results.csv.")] = True,
    parquet: Annotated[bool, typer.Option(help="Write results.parquet; needs pyarrow.")] = True,
) -> None:
    """Write the units of a run as tables, one row each."""
    from galaxydit.eval.report.export import write_csv, write_parquet
    from galaxydit.eval.report.run import read_run

    found = read_run(run)
    if csv:
        _show(write_csv(found, run / "results.csv"))
    if parquet:
        _show(write_parquet(found, run / "results.parquet"))


def _show(path: Path) -> None:
    Console().print(str(path), highlight=False, markup=False, soft_wrap=True)
