"""`galaxydit compare`: methods on the same prompts, seeds and machine."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

from galaxydit.commands import options
from galaxydit.commands.argument_checks import check_output_folder
from galaxydit.commands.captions import Prompts, calibration_prompts, read_or_draw_prompts
from galaxydit.commands.conclusion import NextCommand, conclude
from galaxydit.commands.console import between_commas, messages, resumable, say, show, show_json
from galaxydit.commands.jobs import job_keys
from galaxydit.errors import refusal
from galaxydit.eval.compare.plan import PAGE, RESULTS, ComparisonPlan, video_name
from galaxydit.eval.compare.scored_settings import read_settings
from galaxydit.eval.methods.method_registry import declared, is_installed, load_method, names_of
from galaxydit.pipelines.inputs import parse_inputs
from galaxydit.pipelines.own_files import check_replaceable, own_html, own_json, own_markdown, own_picture, own_video
from galaxydit.pipelines.table import Table, number
from galaxydit.pipelines.written_by import COMPARISON, write_markdown

if TYPE_CHECKING:
    from galaxydit.eval.compare.compare_job import Comparison

TABLE, PLOT = "table.md", "pareto.png"  # in --out


def compare(
    *,
    plugins: options.PluginOptions,
    source: options.WanTinyByDefault,
    prompts: Prompts = "32",
    seeds: Annotated[str, typer.Option(help="With commas; each prompt is scored with each of them.")] = "0",
    speedups: Annotated[str, typer.Option(help="Wanted speedups by compute, with commas.")] = "1.5,2,2.5,3",
    methods: Annotated[str, typer.Option(help="Names with commas, see --list, or all, published, ablations.")] = "all",
    out: Annotated[Path, typer.Option(help="Folder for results, tables, plot and videos.")] = Path("runs/compare"),
    calibration: Annotated[Path | None, typer.Option(help="Prompts to tune on; by default wan-tiny's own.")] = None,
    profile: Annotated[
        list[Path] | None,
        typer.Option(
            help="A file of `calibrate`, which methods with planned steps follow; by default the profile that is "
            "shipped for the model. May be given several times."
        ),
    ] = None,
    tune_prompts: Annotated[int, typer.Option(min=1, help="How many of the --calibration prompts to tune on.")] = 8,
    settings_of: Annotated[
        Path | None,
        typer.Option(help="A results.json whose settings are scored, without tuning, for example in another --dtype."),
    ] = None,
    sizes: options.Sizes,
    list_methods: Annotated[bool, typer.Option("--list", help="Only show the methods.")] = False,
    allow_mixed_versions: options.MixedVersions = False,
    force: options.Force = False,
    as_json: options.AsJson = False,
    cluster: options.RayOptions,
) -> None:
    """Compare methods at equal compute. The same command resumes an interrupted comparison.

    With several --profile, each method that follows a profile is compared once with each of them. `galaxydit eval`
    reports, exports and checks the scored videos as those of any run.
    """
    if list_methods:
        _list_methods(as_json)
        return
    names = names_of(between_commas(methods))
    for path in profile or ():
        options.RequestOptions(profile=str(path))  # raises for a profile that does not exist
    wanted, noise = _numbers(speedups, "--speedups", float), _numbers(seeds, "--seeds", int)
    if not 0 <= min(noise) <= max(noise) <= options.LARGEST_SEED:
        raise refusal("--seeds", seeds, "whole numbers from 0 to 2**64 - 1", "pass for example 0")
    check_output_folder(out)
    check_replaceable(out / RESULTS, "--out", own_json(COMPARISON), force=force)
    check_replaceable(out / TABLE, "--out", own_markdown, force=force)
    check_replaceable(out / PLOT, "--out", own_picture, force=force)
    check_replaceable(out / PAGE, "--out", own_html, force=force)
    for speedup in wanted:
        check_replaceable(out / video_name(speedup), "--out", own_video, force=force)
    reserved = calibration_prompts(calibration, source.model, "--calibration")
    plan = ComparisonPlan(read_or_draw_prompts(prompts, source.model, reserved), noise, reserved, wanted, tune_prompts)
    scored = None if settings_of is None else read_settings(settings_of)
    if scored is not None:
        names = scored.methods(names, are_named=methods != "all")
    for prompt in (*plan.prompts, *plan.tuning_prompts):
        parse_inputs(prompt)  # raises for damaged JSON and missing files
    say("loading the methods")
    import diffusers

    from galaxydit.eval.compare.compare_job import CompareJob
    from galaxydit.eval.compare.compare_page import write_compare_page
    from galaxydit.eval.compare.contender import contenders_of
    from galaxydit.eval.compare.markdown import markdown
    from galaxydit.eval.compare.pareto_plot import plot_pareto
    from galaxydit.eval.compare.side_by_side import save_videos
    from galaxydit.eval.jobs.job import EXAMPLE_STEPS
    from galaxydit.eval.jobs.jobfile import job_of
    from galaxydit.pipelines.runs import LiveProgress
    from galaxydit.profiles.profile_registry import load_profile

    for path in profile or ():
        load_profile(path)  # raises for a damaged profile, before anything is generated
    contenders = contenders_of([load_method(name) for name in names], tuple(profile or ()))

    job = job_of(job_keys(source, sizes) | {"prompts": {"texts": list(plan.prompts)}}, Path())
    diffusers.logging.set_verbosity_error()  # some caches warn at every generation that they are experimental
    tuning, scoring = plan.generations([each.method for each in contenders], sizes.steps or EXAMPLE_STEPS, scored)
    fewer = "fewer --prompts, --speedups, --methods or --tune-prompts take less"
    say(f"up to {tuning} generations to tune and {scoring} to score, unless stored, timed after the first; {fewer}")
    progress = LiveProgress(messages())
    with resumable(progress.how_far), progress, cluster.executor() as executor:
        comparison = CompareJob(
            job, contenders, plan, out, progress, executor, scored=scored, allow_mixed_versions=allow_mixed_versions
        ).run()
    write_markdown(out / TABLE, markdown(comparison))
    plot_pareto(comparison, out / PLOT, source.model)
    videos = save_videos(comparison, out)
    page = write_compare_page(comparison, out, source.model, out / PLOT, videos)
    if as_json:
        show_json(out / RESULTS)
        return
    show(*(scores_table(comparison, speedup) for speedup in plan.speedups))
    for name, reason in comparison.failed.items():
        say(f"left out: {name}: {reason}", "yellow")
    made = [out / RESULTS, out / TABLE, out / PLOT, *videos, page]
    conclude(made, meaning_of(comparison), NextCommand("see the scored videos", ["eval", "report", out]))


def meaning_of(comparison: "Comparison") -> str:
    """The best method at each speedup, in one sentence."""
    from galaxydit.calibration.bootstrap import FEWEST_PROMPTS

    best = []
    for speedup in comparison.plan.speedups:
        reached = [row for row in comparison.at(speedup) if row.psnr is not None]
        if reached:
            best.append(f"{reached[0].method} at {speedup:g}x ({reached[0].psnr:.1f} dB)")
    if not best:
        return "No method reached a wanted speedup."
    prompts = len(comparison.plan.prompts)
    few = f" An interval needs {FEWEST_PROMPTS} prompts." if prompts < FEWEST_PROMPTS else ""
    return f"Closest to the plain videos over {prompts} prompts: {', '.join(best)}.{few}"


def _list_methods(as_json: bool) -> None:
    rows = [
        {"name": each.name, "source": each.source, "missing": None if is_installed(each.needs) else each.needs}
        for each in declared().values()
    ]
    if as_json:
        show_json(rows)
        return
    for row in rows:
        show(f"{row['name']}: {row['source']}" + (f"; needs {row['missing']}" if row["missing"] else ""))


def _numbers(text: str, option: str, kind: type) -> tuple[Any, ...]:
    try:
        values = tuple(kind(part) for part in between_commas(text))
    except ValueError:
        values = ()
    if not values:
        raise typer.BadParameter(f"is {text!r}, allowed are numbers with commas, such as 2 or 1,2", param_hint=option)
    return values


def scores_table(comparison: "Comparison", speedup: float) -> Group:
    """The scores of the methods at one speedup, best first; the caption names the methods that do not reach it."""
    from galaxydit.eval.compare.markdown import SOUND, footnotes, scores, settings_of

    headings = ["PSNR, dB", "worst prompt", "SSIM", "ahead of best other", "95 % interval", "speedup by seconds"]
    shown = comparison.at(speedup)
    reached = [result for result in shown if result.psnr is not None]
    rows = [[result.method, *scores(result)] for result in reached]
    if any(result.si_sdr is not None for result in reached):
        headings.append(SOUND)
        rows = [[*row, number(result.si_sdr, ".2f")] for row, result in zip(rows, reached, strict=True)]
    missed = [f"{result.method} (nearest: {settings_of(result)})" for result in shown if result.psnr is None]
    table = Table((f"at {speedup:g}x by compute", *headings), rows)
    notes = [f"out of reach: {', '.join(missed)}"] if missed else []
    notes += footnotes(reached, len(comparison.plan.prompts))
    return Group(table, *map(Text, notes))
