"""`galaxydit eval vbench`: a run's videos judged by VBench, and the environment and weights that it needs."""

import shlex
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from galaxydit.commands.conclusion import NextCommand, conclude
from galaxydit.commands.console import between_commas, download_bars, messages, resumable, say, show, show_json
from galaxydit.commands.exit_codes import ExitCode
from galaxydit.commands.grouping import RayCommand, grouped
from galaxydit.commands.help_sections import SectionedGroup
from galaxydit.commands.options import AsJson, RayOptions, RunPath
from galaxydit.eval.published import SUITES
from galaxydit.eval.published.suite import Suite, SuiteName
from galaxydit.pipelines.table import Table

if TYPE_CHECKING:
    from galaxydit.eval.vbench.results import Results

Dimensions = Annotated[list[str], typer.Option(help="Such as temporal_flickering; several with commas.")]
SuiteOption = Annotated[SuiteName, typer.Option(help="VBench 1.0 or VBench-2.0.")]
EnvironmentFolder = Annotated[Path, typer.Option(help="The folder of `galaxydit eval vbench setup`.")]
WeightsFolder = Annotated[Path | None, typer.Option("--weights", help="Folder of its weights; by default its cache.")]
StaticFilter = Annotated[
    bool | None,
    typer.Option(help="Measure temporal flickering on static videos only; by default for the benchmark's own prompts."),
]


class ScoreByDefault(SectionedGroup):
    """A group of commands whose arguments go to the command `score` if they do not begin with a command's name."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        return super().resolve_command(ctx, args if args[0] in self.commands else ["score", *args])


app = typer.Typer(
    cls=ScoreByDefault,
    help="Measure a run with VBench. `galaxydit eval vbench RUN` is short for `galaxydit eval vbench score RUN`.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


def score(
    run: RunPath,
    dimensions: Dimensions,
    environment: EnvironmentFolder,
    suite: SuiteOption = "vbench",
    weights: WeightsFolder = None,
    share: Annotated[
        int | None, typer.Option(min=1, help="Videos of a unit, which is measured at once; by default 100.")
    ] = None,
    static_filter: StaticFilter = None,
    trust_weights: Annotated[
        bool, typer.Option("--trust-weights", help="Unpickle weights, which can run code; by default tensors only.")
    ] = False,
    as_json: AsJson = False,
    *,
    cluster: RayOptions,
) -> None:
    """Score the videos of a run with VBench. Each variant is compared with the baseline. Run it again to resume."""
    benchmark = SUITES[suite]
    names = between_commas(*dimensions)
    benchmark.select(names)
    from galaxydit.eval.report.benchmarks import notes
    from galaxydit.eval.vbench.environment import open_environment
    from galaxydit.eval.vbench.measure_dimensions import evaluate
    from galaxydit.pipelines.runs import LiveProgress

    opened = open_environment(environment, benchmark)
    say(f"{benchmark.title}: {', '.join(names)}")
    progress = LiveProgress(messages())
    with resumable(progress.how_far), progress, cluster.executor() as executor:
        results = evaluate(
            run,
            names,
            opened,
            weights,
            suite=benchmark,
            share=share,
            static_filter=static_filter,
            trust=trust_weights,
            executor=executor,
            progress=progress,
        )
    if as_json:
        show_json(asdict(results))
    else:
        show(vbench_table(results), *totals(results), *notes(benchmark, results))
        text = "Points are of 100, the best; lost is the baseline's points minus the variant's, on the same prompts."
        following = NextCommand("see these points beside the videos", ["eval", "report", run])
        conclude([f"{run}/{suite}/results.json"], text, following)
    for place, reason in results.failed.items():
        say(f"error: {place}: {reason}", "red")
    if results.failed:
        raise typer.Exit(ExitCode.FAILED)


def setup(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder, or one that setup was stopped in.")],
    suite: SuiteOption = "vbench",
    pip: Annotated[
        str, typer.Option(help="Arguments of `pip install`, such as '--index-url URL' for another build of torch.")
    ] = "",
    detectron2: Annotated[
        Path | None, typer.Option(help="A checkout of facebookresearch/detectron2, for four dimensions.")
    ] = None,
) -> None:
    """Build the environment of a benchmark. It is apart from this one, of pinned packages."""
    from galaxydit.eval.vbench.environment import set_up

    say(f"setting up {folder}")
    made, versions = set_up(folder, SUITES[suite], pip_arguments=shlex.split(pip), detectron2=detectron2, tell=say)
    show(f"{folder}: {SUITES[suite].package} {made.version}, {versions}")


def fetch(
    dimensions: Dimensions,
    suite: SuiteOption = "vbench",
    weights: WeightsFolder = None,
    static_filter: Annotated[bool, typer.Option(help="Also what the filter of static videos needs.")] = True,
) -> None:
    """Download the weights of dimensions. They come from the benchmark's own sources, to --weights or else its cache.
    The same command resumes.
    """
    from galaxydit.eval.published.vbench import RAFT
    from galaxydit.eval.vbench.environment import default_cache
    from galaxydit.eval.vbench.fetch import fetch as fetch_weights

    chosen = SUITES[suite].select(between_commas(*dimensions))
    if unserved := [dimension.name for dimension in chosen if dimension.needs and not dimension.weights]:
        needs = SUITES[suite].dimensions[unserved[0]].needs
        reason = f"{unserved[0]} needs {needs}: install these as upstream's README says"
        raise typer.BadParameter(reason, param_hint="--dimensions")
    extra = [RAFT] if static_filter and any(dimension.filtered for dimension in chosen) else []
    with download_bars() as tell:
        written = fetch_weights(chosen, extra, weights or default_cache(SUITES[suite]), tell)
    lines: list[object] = [*written]
    show(*(lines or ["every file is there"]))


def dimensions(suite: SuiteOption = "vbench") -> None:
    """Show what each dimension needs. Also licences, and how far this project has run it."""
    show(*dimension_lines(SUITES[suite]))


def prompts(environment: EnvironmentFolder, dimensions: Dimensions, suite: SuiteOption = "vbench") -> None:
    """Print the prompts of dimensions. One a line, for the prompts file of a job."""
    from galaxydit.eval.vbench.environment import open_environment, read_full_info

    benchmark = SUITES[suite]
    wanted = {dimension.name for dimension in benchmark.select(between_commas(*dimensions))}
    entries = read_full_info(open_environment(environment, benchmark), benchmark)
    show(*dict.fromkeys(entry["prompt_en"] for entry in entries if wanted & set(entry["dimension"])))


for command in (score, setup, fetch, dimensions, prompts):
    app.command(cls=RayCommand)(grouped(command))


def vbench_table(results: "Results") -> Table:
    """One row for each dimension and variant: raw score, points, points lost against the baseline, number of videos."""
    rows = []
    names = dict.fromkeys(name for scores in results.variants.values() for name in scores.dimensions)
    for name in names:
        for variant, scores in results.variants.items():
            if dimension := scores.dimensions.get(name):
                drop = dimension.drop
                lost = f"{drop.mean:+.2f}" if drop else ""
                interval = f"{drop.low:+.2f} to {drop.high:+.2f}" if drop and drop.low is not None else ""
                score, points = f"{dimension.score:.4f}", f"{dimension.points:.2f}{'' if dimension.complete else '*'}"
                rows.append((name, variant, score, points, lost, interval, str(len(dimension.videos))))
    headings = ("dimension", "variant", "score", "points", "lost", "95 %", "videos")
    return Table(headings, rows, 2)


def dimension_lines(suite: Suite) -> Iterator[str]:
    """For each dimension its videos per prompt and how far this project has run it, then what it needs."""
    for dimension in suite.dimensions.values():
        files = "; ".join(f"{weights.path.rpartition('/')[2]} ({weights.licence})" for weights in dimension.weights)
        needs = "; ".join(filter(None, (files, *(f"{model} on the hub" for model in dimension.hub), dimension.needs)))
        yield f"{dimension.name}: {dimension.filtered or dimension.samples} videos per prompt; {dimension.proof}"
        yield f"  needs {needs or 'nothing'}"


def totals(results: "Results") -> Iterator[str]:
    """Points of each variant's complete groups and total."""
    for variant, scores in results.variants.items():
        parts = [f"{group} {points:.2f}" for group, points in scores.groups.items()]
        if scores.total is not None:
            parts.append(f"total {scores.total:.2f}")
        if parts:
            yield f"{variant}: {', '.join(parts)}"
