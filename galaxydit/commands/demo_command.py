"""`galaxydit demo`: one model, by default the one that is part of this package, plain against accelerated."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from galaxydit.commands.argument_checks import check_output_folder
from galaxydit.commands.captions import KNOWN_WORDS, WITH_CAPTIONS, read_or_draw_prompts, warn_of_unknown_words
from galaxydit.commands.conclusion import NextCommand, conclude, model_arguments, size_arguments
from galaxydit.commands.console import narrating, say, show, show_json
from galaxydit.commands.options import (
    AsJson,
    Force,
    InputFiles,
    PluginOptions,
    RequestOptions,
    Seed,
    Sizes,
    WanTinyByDefault,
)
from galaxydit.pipelines.own_files import check_replaceable, own_json, own_picture, own_sound, own_video
from galaxydit.pipelines.table import Table
from galaxydit.pipelines.written_by import DEMO

if TYPE_CHECKING:
    from galaxydit.eval.demo import DemoResult

OWN = {".mp4": own_video, ".flac": own_sound, ".png": own_picture, ".json": own_json(DEMO)}
SOUND = (("si_sdr", "SI-SDR, dB", ".2f"), ("log_mel", "log-mel, dB", ".2f"), ("rms_ratio", "RMS ratio", ".3f"))


def demo(
    *,
    plugins: PluginOptions,
    source: WanTinyByDefault,
    out: Annotated[Path, typer.Option(help="Folder for videos, pictures and report.")] = Path("runs/demo"),
    prompt: Annotated[
        str | None,
        typer.Option(help=f"By default one that no training or calibration used. wan-tiny knows {KNOWN_WORDS}."),
    ] = None,
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
    say("loading torch and diffusers")
    from galaxydit.energy import meter_of
    from galaxydit.eval.demo import FILES, SOUND_FILES, run_demo

    for name in FILES + SOUND_FILES:
        check_replaceable(out / name, "--out", OWN[Path(name).suffix], force=force)
    with narrating() as tell:
        tell(f"loading {source.model}")
        pipe = source.load()
    warn_of_unknown_words(source.model, [prompt or ""])
    meter = meter_of(pipe._execution_device, cpu=True)
    settings = sizes.settings_for(pipe)
    with narrating() as tell:
        result = run_demo(pipe, texts, settings, seed, out, acceleration=vars(request), on_progress=tell)
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
    show(demo_table(result), *(["the first prompt:"] if len(texts) > 1 else []), report, "")
    model, size = model_arguments(source), size_arguments(sizes)
    learn = ["calibrate", *model, "--out", "profile.json", *size]
    conclude(result.files, meaning_of(result), NextCommand("measure which steps this model can leave out", learn))


def meaning_of(result: "DemoResult") -> str:
    """What a demo shows, in one sentence."""
    _, accelerated, fewer = result.ways
    psnr, by_fewer = (result.mean(way, "psnr") for way in (accelerated, fewer))
    share = result.mean(accelerated, "compute_fraction")
    if share is None or share >= 1 or psnr is None or by_fewer is None:
        return "Every step was computed, for the reasons above, so the accelerated video is the plain one."
    return (
        f"With {share:.0%} of the compute, the video has {psnr:.1f} dB PSNR against the plain one "
        f"(higher is closer), where {fewer} have {by_fewer:.1f} dB."
    )


def _prompts(model: str, count: int, seed: int) -> list[str]:
    """Built-in prompts; for the embedded model unseen captions, a single one over a plain background."""
    if model != WITH_CAPTIONS:
        return list(read_or_draw_prompts(str(count), model, ()))
    from galaxydit.pipelines.wan_tiny.world import draw_prompts

    drawn = draw_prompts(max(count, 20), seed)
    if count > 1:
        return drawn[:count]
    over_a_plain_background = [prompt for prompt in drawn if "over a plain" in prompt]
    return [*over_a_plain_background, drawn[0]][:1]


def demo_table(result: "DemoResult") -> Table:
    """One row for each way to generate, with means over the prompts; without seconds and joules if disturbed."""
    columns: list[tuple[str, Callable[[str], str]]] = []  # heading, and the cell of a way to generate
    if not result.disturbance:
        for field, heading in (("denoise_seconds", "denoise seconds"), ("end_to_end_seconds", "end to end seconds")):
            columns.append((heading, partial(_mean, result, field, ".2f")))
            columns.append(("speedup", partial(_speedup, result, field)))
    columns.append(("compute", partial(_mean, result, "compute_fraction", ".0%")))
    columns.append(("PSNR, dB", partial(_mean, result, "psnr", ".2f")))
    columns.append(("SSIM", partial(_mean, result, "ssim", ".3f")))
    measured = {metric for way in result.ways.values() for each in way for metric in each.metrics}
    for metric, heading, form in SOUND:
        if metric in measured:
            columns.append((heading, partial(_mean, result, metric, form)))
    joules = "energy_per_video_joules"
    if not result.disturbance and result.mean("plain", joules) is not None:
        columns.append(("end to end joules", partial(_mean, result, joules, ",.0f")))
    rows = [[way, *(cell(way) for _, cell in columns)] for way in result.ways]
    return Table(("", *(heading for heading, _ in columns)), rows)


def _mean(result: "DemoResult", field: str, form: str, way: str) -> str:
    value = result.mean(way, field)
    return "" if value is None else format(value, form)


def _speedup(result: "DemoResult", field: str, way: str) -> str:
    return f"{result.speedup(way, field):.2f}x"
