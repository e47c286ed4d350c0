"""`galaxydit demo`: the embedded model, plain against accelerated."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from galaxydit.commands.captions import warn_of_unknown_words
from galaxydit.commands.checks import check_acceleration, check_output_folder
from galaxydit.commands.console import say, show, show_json, working
from galaxydit.commands.options import AsJson, MaxError, ProfileName, Seed, Speedup, Threshold, load_quietly

if TYPE_CHECKING:
    from galaxydit.eval.demo import DemoResult

MODEL = "wan-tiny"


def demo(
    out: Annotated[Path, typer.Option(help="Folder for videos, plot and report.")] = Path("runs/demo"),
    prompt: Annotated[str | None, typer.Option(help="A caption; by default one that training never showed.")] = None,
    prompts: Annotated[int, typer.Option(min=1, help="How many unseen captions to run; the seed draws them.")] = 1,
    seed: Seed = 0,
    speedup: Speedup = None,
    max_error: MaxError = None,
    profile: ProfileName = None,
    threshold: Threshold = None,
    as_json: AsJson = False,
) -> None:
    """Generate a video three ways on the embedded model: plain, accelerated, and with half the steps."""
    if prompt is not None and prompts != 1:
        raise typer.BadParameter("is 1 if --prompt is given: leave one of the two out", param_hint="--prompts")
    acceleration = {"speedup": speedup, "max_error": max_error, "profile": profile, "threshold": threshold}
    check_acceleration(speedup, max_error, profile, threshold)
    check_output_folder(out)
    with working(f"loading {MODEL}") as tell:
        from galaxydit.eval.demo import run_demo
        from galaxydit.pipelines.published_models import recommended_settings
        from galaxydit.pipelines.wan_tiny.world import draw_prompts

        pipe = load_quietly(MODEL)
        warn_of_unknown_words(prompt or "", pipe.tokenizer.get_vocab())
        result = run_demo(
            pipe,
            [prompt] if prompt is not None else draw_prompts(prompts, seed),
            recommended_settings(pipe),
            seed,
            out,
            acceleration=acceleration,
            on_progress=tell,
        )
    if result.is_disturbed:
        say(
            "other work disturbed this machine: equal compute took very different seconds, so do not compare them",
            "yellow",
        )
    if as_json:
        show_json(out / "report.json")
        return
    samples = result.plain.samples
    shown = samples[0].prompt if len(samples) == 1 else f"means over {len(samples)} unseen prompts"
    show(f"{MODEL} on {pipe.device}: {shown}")
    Console().print(build_table(result))
    show(*(["the first prompt:"] if len(samples) > 1 else []), result.reports[0], *result.files)


def build_table(result: "DemoResult") -> Table:
    """One row for each variant, with means over the prompts."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 0, 0, 1), collapse_padding=True)
    table.add_column("", no_wrap=True)
    headings = ("denoise\nseconds", "\nspeedup", "end to end\nseconds", "\nspeedup", "\ncompute", "PSNR\ndB", "\nSSIM")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for variant in result.variants:
        psnr, ssim = variant.mean("psnr"), variant.mean("ssim")
        table.add_row(
            variant.name,
            f"{variant.mean('denoise_seconds'):.2f}",
            f"{variant.speedup(result.plain, 'denoise_seconds'):.2f}x",
            f"{variant.mean('end_to_end_seconds'):.2f}",
            f"{variant.speedup(result.plain, 'end_to_end_seconds'):.2f}x",
            f"{variant.mean('compute_fraction'):.0%}",
            "" if psnr is None else f"{psnr:.2f}",
            "" if ssim is None else f"{ssim:.3f}",
        )
    return table
