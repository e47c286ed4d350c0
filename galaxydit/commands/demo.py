"""`galaxydit demo`: wan-tiny, the model that is part of this package, plain against accelerated.

`request` is the group of options that are arguments of `galaxydit.accelerate`, such as the speedup.
"""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from galaxydit.commands.captions import WITH_CAPTIONS, warn_of_unknown_words
from galaxydit.commands.checks import check_output_folder
from galaxydit.commands.console import say, show, show_json, working
from galaxydit.commands.options import AsJson, ModelOptions, RequestOptions, Seed
from galaxydit.pipelines.table import Table

if TYPE_CHECKING:
    from galaxydit.eval.demo import DemoResult


def demo(
    *,
    out: Annotated[Path, typer.Option(help="Folder for videos, plot and report.")] = Path("runs/demo"),
    prompt: Annotated[str | None, typer.Option(help="A caption; by default one that training never showed.")] = None,
    prompts: Annotated[int, typer.Option(min=1, help="How many unseen captions to run; the seed draws them.")] = 1,
    seed: Seed = 0,
    request: RequestOptions,
    as_json: AsJson = False,
) -> None:
    """Make a video plain, accelerated, and with half the steps."""
    if prompt is not None and prompts != 1:
        raise typer.BadParameter("is 1 if --prompt is given: leave one of the two out", param_hint="--prompts")
    check_output_folder(out)
    with working(f"loading {WITH_CAPTIONS}") as tell:
        from galaxydit.energy import meter_of
        from galaxydit.eval.demo import run_demo
        from galaxydit.pipelines.published_models import recommended_settings
        from galaxydit.pipelines.wan_tiny.world import draw_prompts

        pipe = ModelOptions(WITH_CAPTIONS).load()
        warn_of_unknown_words(prompt or "", pipe.tokenizer.get_vocab())
        meter = meter_of(pipe.device, cpu=True)
        texts = draw_prompts(prompts, seed) if prompt is None else [prompt]
        settings = recommended_settings(pipe)
        result = run_demo(
            pipe, texts, settings, seed, out, acceleration=vars(request), on_progress=tell, cpu_counter=True
        )
    if result.disturbance:
        say(f"other work disturbed this run, so do not compare its seconds: {result.disturbance}", "yellow")
    if as_json:
        show_json(out / "report.json")
        return
    if isinstance(meter, str):
        say(f"no joules are measured: {meter}")
    shown = result.cases[0][0] if len(texts) == 1 else f"means over {len(texts)} unseen prompts"
    show(f"{WITH_CAPTIONS} on {pipe.device}: {shown}")
    report = replace(result.reports[0], plain_seconds=None) if result.disturbance else result.reports[0]
    show(demo_table(result), *(["the first prompt:"] if len(texts) > 1 else []), report, *result.files)


def demo_table(result: "DemoResult") -> Table:
    """One row for each way to generate (plain, accelerated, half the steps), with means over the prompts."""
    from galaxydit.pipelines.disturbance import marked

    headings = ["denoise seconds", "speedup", "end to end seconds", "speedup", "compute", "PSNR, dB", "SSIM"]
    has_joules = result.mean("plain", "energy_per_video_joules") is not None
    headings += ["end to end joules"] if has_joules else []
    rows = []
    for name in result.ways:
        row = [name]
        for seconds in ("denoise_seconds", "end_to_end_seconds"):
            speedup = f"{result.speedup(name, seconds):.2f}x"
            row += [f"{result.mean(name, seconds):.2f}", marked(speedup, result.disturbance)]
        psnr, ssim = result.mean(name, "psnr"), result.mean(name, "ssim")
        row += [f"{result.mean(name, 'compute_fraction'):.0%}", "" if psnr is None else f"{psnr:.2f}"]
        row.append("" if ssim is None else f"{ssim:.3f}")
        rows.append([*row, f"{result.mean(name, 'energy_per_video_joules') or 0:,.0f}"] if has_joules else row)
    return Table(("", *headings), rows)
