"""`galaxydit eval vbench`: a run's videos, judged by VBench."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from galaxydit.commands.console import say, show, show_json, table_of, working
from galaxydit.commands.options import AsJson, RunPath

if TYPE_CHECKING:
    from galaxydit.eval.vbench.results import Results


def vbench(
    run: RunPath,
    dimensions: Annotated[list[str], typer.Option(help="Such as temporal_flickering; several with commas.")],
    environment: Annotated[Path, typer.Option(help="Folder of a virtual environment that has the package vbench.")],
    weights: Annotated[Path | None, typer.Option(help="Folder of its weights; by default its own cache.")] = None,
    as_json: AsJson = False,
) -> None:
    """Measure dimensions of VBench on all videos of a run, and how much each variant lost."""
    from galaxydit.eval.published.vbench import select

    names = [name.strip() for given in dimensions for name in given.split(",") if name.strip()]
    select(names)
    from galaxydit.eval.vbench.results import results_path
    from galaxydit.eval.vbench.run import evaluate, open_environment

    with working("opening the environment") as tell:
        opened = open_environment(environment)
        tell(f"VBench: {', '.join(names)}")
        results = evaluate(run, names, opened, weights)
    written = results_path(Path(run))
    if as_json:
        show_json(written)
    else:
        show(build_table(results), *describe(results), written)
    for place, reason in results.failed.items():
        say(f"error: {place}: {reason}", "red")
    if results.failed:
        raise typer.Exit(1)


def build_table(results: "Results") -> Table:
    """One row for each dimension and variant: the raw score, the points, and those lost against the baseline."""
    rows = []
    names = dict.fromkeys(name for scores in results.variants.values() for name in scores.dimensions)
    for name in names:
        for variant, scores in results.variants.items():
            if score := scores.dimensions.get(name):
                drop = score.drop
                lost = f"{drop.mean:+.2f}" if drop else ""
                interval = f"{drop.low:+.2f} to {drop.high:+.2f}" if drop and drop.low is not None else ""
                figures = (f"{score.score:.4f}", f"{score.points:.2f}", lost, interval, str(len(score.videos)))
                rows.append((name, variant, *figures))
    headings = ("score", "points", "lost", "95 %", "videos")
    return table_of(rows, ("dimension", "variant"), headings, show_edge=False)


def describe(results: "Results") -> Iterator[str]:
    """Totals, or why there are none, and what does not count."""
    for variant, scores in results.variants.items():
        parts = [f"{group} {points:.2f}" for group, points in scores.groups.items()]
        if scores.total is not None:
            parts.append(f"total {scores.total:.2f}")
        if parts:
            yield f"{variant}: {', '.join(parts)}"
    if missing := next(iter(results.variants.values())).missing:
        yield f"no total: it needs the benchmark's own prompts, all of them, for {', '.join(missing)} too"
    if results.left_out:
        yield f"{results.left_out} pairs of prompt and seed do not count: not every variant has a video of them"
    if not results.lossless:
        yield 'the videos are lossy files: VBench measures the codec too; video = "lossless" in the job avoids that'
