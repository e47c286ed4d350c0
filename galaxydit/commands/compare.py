"""`galaxydit compare`: methods on the same prompts, seeds and machine."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from galaxydit.commands import options
from galaxydit.commands.captions import WITH_CAPTIONS, Prompts, calibration_prompts, read_or_draw_prompts
from galaxydit.commands.checks import check_model, check_output_folder, check_prompt_inputs
from galaxydit.commands.console import messages, resumable, say, show, show_json, working
from galaxydit.commands.executors import GpusPerWorker, Ray, Workers, check_ray_options, chosen_executor, load_for
from galaxydit.eval.compare.plan import ComparisonPlan
from galaxydit.eval.compare.registry import METHOD_SOURCES, NEEDS, check_methods, is_installed

if TYPE_CHECKING:
    from galaxydit.eval.compare.comparison import Comparison


def compare(
    model: options.Model = WITH_CAPTIONS,
    prompts: Prompts = "32",
    seeds: Annotated[str, typer.Option(help="With commas; each prompt is scored with each of them.")] = "0",
    speedups: Annotated[str, typer.Option(help="Wanted speedups by compute, with commas.")] = "1.5,2,2.5,3",
    methods: Annotated[
        str, typer.Option(help="Names with commas, or all, published, ablations; --list shows them.")
    ] = "all",
    out: Annotated[Path, typer.Option(help="Folder for results, kept samples, tables, plot and videos.")] = Path(
        "runs/compare"
    ),
    calibration: Annotated[
        Path | None, typer.Option(help="Prompts to calibrate and tune on; by default wan-tiny's own.", exists=True)
    ] = None,
    tune_prompts: Annotated[int, typer.Option(min=1, help="How many of them.")] = 8,
    steps: options.Steps = None,
    guidance: options.Guidance = None,
    flow_shift: options.FlowShift = None,
    height: options.Height = None,
    width: options.Width = None,
    frames: options.Frames = None,
    list_methods: Annotated[bool, typer.Option("--list", help="Only show the methods.")] = False,
    as_json: options.AsJson = False,
    revision: options.Revision = None,
    offload: options.Offloading = "none",
    ray: Ray = None,
    workers: Workers = None,
    gpus_per_worker: GpusPerWorker = None,
) -> None:
    """Compare all methods at equal compute. Started again after a kill, it goes on where it was."""
    if list_methods:
        _list_methods(as_json)
        return
    names = [name.strip() for name in methods.split(",") if name.strip()]
    check_methods(names)
    wanted = _numbers(speedups, "--speedups", float)
    noise = _numbers(seeds, "--seeds", int)
    for seed in noise:
        options.check_seed(seed, "--seeds")
    check_model(model)
    shape = {"height": height, "width": width, "frames": frames}
    sizes = {"steps": steps, "guidance": guidance, "flow_shift": flow_shift, **shape}
    options.check_sizes(**sizes)
    check_ray_options(ray, workers, gpus_per_worker)
    check_output_folder(out)
    reserved = tuple(calibration_prompts(calibration, model, "--calibration"))
    plan = ComparisonPlan(read_or_draw_prompts(prompts, model, reserved), noise, reserved, wanted, tune_prompts)
    check_prompt_inputs([*plan.prompts, *plan.tuning_prompts])
    with working("loading the methods"):
        import diffusers

        from galaxydit.eval.compare.bench import KIND, Bench
        from galaxydit.eval.compare.comparison import run_comparison
        from galaxydit.eval.compare.every_method import choose_methods
        from galaxydit.eval.compare.markdown import markdown
        from galaxydit.eval.compare.pareto_plot import plot_pareto
        from galaxydit.eval.compare.side_by_side import save_videos
        from galaxydit.pipelines.runs import LiveProgress, Store

    chosen = choose_methods(names)
    Store(out).create(KIND, {})
    diffusers.logging.set_verbosity_error()  # some caches warn at every generation that they are experimental
    with working(f"loading {model}"):
        pipe, load = load_for(ray, model, revision, offload)
    settings = options.chosen_settings(pipe, **sizes)
    progress = LiveProgress(messages())
    with resumable(progress.how_far), progress, chosen_executor(ray, workers, gpus_per_worker) as executor:
        comparison = run_comparison(pipe, chosen, plan, settings, out, progress, executor, load)
    (out / "table.md").write_text(markdown(comparison), encoding="utf-8")
    plot_pareto(comparison, out / "pareto.png")
    videos = save_videos(comparison, Bench(pipe, settings, out, chosen), out)
    if as_json:
        show_json(out / "results.json")
        return
    for speedup in plan.speedups:
        Console().print(build_table(comparison, speedup))
    for name, reason in comparison.failed.items():
        say(f"left out: {name}: {reason}", "yellow")
    show(out / "results.json", out / "table.md", out / "pareto.png", *videos)


def _list_methods(as_json: bool) -> None:
    missing = {name: module for name, module in NEEDS.items() if not is_installed(module)}
    if as_json:
        rows = [
            {"name": name, "source": source, "missing": missing.get(name)} for name, source in METHOD_SOURCES.items()
        ]
        show_json(rows)
        return
    for name, source in METHOD_SOURCES.items():
        show(f"{name}: {source}" + (f"; needs {missing[name]}" if name in missing else ""))


def _numbers(text: str, option: str, kind: type) -> tuple[Any, ...]:
    try:
        values = tuple(kind(part) for part in text.split(",") if part.strip())
    except ValueError:
        values = ()
    if not values:
        raise typer.BadParameter(f"is {text!r}, allowed are numbers with commas, such as 2 or 1,2", param_hint=option)
    return values


def build_table(comparison: "Comparison", speedup: float) -> Table:
    """Methods at one speedup, best first; the caption names those that do not reach it."""
    from galaxydit.eval.compare.markdown import scores, settings_of

    table = Table(box=SIMPLE_HEAD, padding=(0, 0, 0, 1), caption_justify="left")
    table.add_column(f"at {speedup:g}x by compute", overflow="fold")  # the only one that may be folded
    headings = ("PSNR\ndB", "worst\nprompt", "\nSSIM", "ahead of\nbest other", "95 %\ninterval", "speedup by\nseconds")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    shown = [one for one in comparison.at_speedups if one.speedup == speedup]
    for one in shown:
        if one.psnr is not None:
            table.add_row(one.method, *scores(one))
    out_of_reach = [f"{one.method} (nearest: {settings_of(one)})" for one in shown if one.psnr is None]
    if out_of_reach:
        table.caption = Text(f"out of reach: {', '.join(out_of_reach)}")
    return table
