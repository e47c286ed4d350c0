"""`galaxydit demo`: one model, by default the one that is part of this package, plain against accelerated."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from galaxydit.commands.argument_checks import check_output_folder
from galaxydit.commands.captions import WITH_CAPTIONS, read_or_draw_prompts, warn_of_unknown_words
from galaxydit.commands.console import say, show, show_json
from galaxydit.commands.options import AsJson, Force, InputFiles, RequestOptions, Seed, Sizes, WanTinyByDefault
from galaxydit.pipelines.own_files import check_replaceable, own_json, own_picture, own_sound, own_video
from galaxydit.pipelines.table import Table
from galaxydit.pipelines.written_by import DEMO

if TYPE_CHECKING:
    from galaxydit.eval.demo import DemoResult

OWN = {".mp4": own_video, ".flac": own_sound, ".png": own_picture, ".json": own_json(DEMO)}
SOUND = (("si_sdr", "SI-SDR, dB", ".2f"), ("log_mel", "log-mel, dB", ".2f"), ("rms_ratio", "RMS ratio", ".3f"))


def demo(
    *,
    source: WanTinyByDefault,
    out: Annotated[Path, typer.Option(help="Folder for videos, pictures and report.")] = Path("runs/demo"),
    prompt: Annotated[str | None, typer.Option(help="By default one that no training or calibration used.")] = None,
    prompts: Annotated[int, typer.Option(min=1, help="How many of the default prompts to run.")] = 1,
    inputs: InputFiles,
    sizes: Sizes,
    seed: Seed = 0,
    request: RequestOptions,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Make a video plain, accelerated, and with half the steps. They stand side by side with their differences."""
    if prompt is not None and prompts != 1:
        raise typer.BadParameter("is 1 if --prompt is given: leave one of the two out", param_hint="--prompts")
    texts = inputs.added_to(_prompts(source.model, prompts, seed) if prompt is None else [prompt])
    check_output_folder(out)
    say(f"loading {source.model}")
    from galaxydit.energy import meter_of
    from galaxydit.eval.demo import FILES, SOUND_FILES, run_demo

    for name in FILES + SOUND_FILES:
        check_replaceable(out / name, "--out", OWN[Path(name).suffix], force=force)
    pipe = source.load()
    warn_of_unknown_words(source.model, [prompt or ""])
    meter = meter_of(pipe._execution_device, cpu=True)
    settings = sizes.settings_for(pipe)
    result = run_demo(pipe, texts, settings, seed, out, acceleration=vars(request), on_progress=say)
    if result.disturbance:
        say(f"other work disturbed this run, so its seconds are not shown: {result.disturbance}", "yellow")
    if as_json:
        show_json(out / "report.json")
        return
    if isinstance(meter, str):
        say(f"no joules are measured: {meter}")
    if reason := result.reason("si_sdr"):
        say(f"no sound is measured: {reason}")
    shown = result.cases[0][0] if len(texts) == 1 else f"means over {len(texts)} prompts"
    show(f"{source.model} on {pipe._execution_device}: {shown}")
    report = replace(result.reports[0], plain_seconds=None) if result.disturbance else result.reports[0]
    show(demo_table(result), *(["the first prompt:"] if len(texts) > 1 else []), report, *result.files)


def _prompts(model: str, count: int, seed: int) -> list[str]:
    """Built-in prompts; for the embedded model unseen captions, a single one over a plain background."""
    if model != WITH_CAPTIONS:
        return list(read_or_draw_prompts(str(count), model, ()))
    from galaxydit.pipelines.wan_tiny.world import draw_prompts

    drawn = draw_prompts(max(count, 20), seed)
    return drawn[:count] if count > 1 else [next((each for each in drawn if "over a plain" in each), drawn[0])]


def demo_table(result: "DemoResult") -> Table:
    """One row for each way to generate, with means over the prompts; without seconds and joules if disturbed."""
    timed = not result.disturbance
    headings = ["denoise seconds", "speedup", "end to end seconds", "speedup"] * timed
    headings += ["compute", "PSNR, dB", "SSIM"]
    measured = {metric for way in result.ways.values() for each in way for metric in each.metrics}
    columns = [column for column in SOUND if column[0] in measured]
    headings += [heading for _, heading, _ in columns]
    has_joules = timed and result.mean("plain", "energy_per_video_joules") is not None
    headings += ["end to end joules"] * has_joules
    rows = []
    for name in result.ways:
        row = [name]
        for seconds in ("denoise_seconds", "end_to_end_seconds") if timed else ():
            row += [f"{result.mean(name, seconds):.2f}", f"{result.speedup(name, seconds):.2f}x"]
        psnr, ssim = result.mean(name, "psnr"), result.mean(name, "ssim")
        row += [f"{result.mean(name, 'compute_fraction'):.0%}", "" if psnr is None else f"{psnr:.2f}"]
        row.append("" if ssim is None else f"{ssim:.3f}")
        for metric, _, form in columns:
            value = result.mean(name, metric)
            row.append("" if value is None else format(value, form))
        rows.append([*row, f"{result.mean(name, 'energy_per_video_joules') or 0:,.0f}"] if has_joules else row)
    return Table(("", *headings), rows)
