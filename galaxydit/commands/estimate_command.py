"""`galaxydit estimate`: predicted seconds, joules, memory and price of a published model's videos."""

from typing import TYPE_CHECKING, Annotated, cast

import typer

from galaxydit.commands.conclusion import NextCommand, conclude
from galaxydit.commands.console import show, show_json
from galaxydit.commands.options import AsJson, Quality
from galaxydit.pipelines.table import amounts
from galaxydit.request import QualityName, Request

if TYPE_CHECKING:
    from galaxydit.eval.cost.cost_estimate import Estimate


def estimate(
    *,
    model: Annotated[str, typer.Option(help="A published model such as wan2.1-t2v-14b, or its hub id.")],
    gpu: Annotated[str, typer.Option(help="h100, h200, b200, a100 or rtx-4090.")] = "h100",
    speedup: Annotated[float | None, typer.Option(help="Speedup by compute of the plugin; by default 2.")] = None,
    quality: Quality = None,
    size: Annotated[str | None, typer.Option(help="WIDTHxHEIGHT; by default the authors'.")] = None,
    frames: Annotated[int | None, typer.Option(help="By default the authors'.")] = None,
    steps: Annotated[int | None, typer.Option(help="By default the authors'.")] = None,
    gpus: Annotated[
        int, typer.Option(help="GPUs that together make one video, not GPUs that make one video each.")
    ] = 1,
    ring: Annotated[int | None, typer.Option(help="Degree of the ring; by default the fastest split.")] = None,
    videos: Annotated[int, typer.Option(help="Number of videos that the price is for.")] = 1,
    price: Annotated[float | None, typer.Option(help="Price of one GPU hour, in any currency.")] = None,
    attention: Annotated[
        str, typer.Option(help="Backend as diffusers names it; native: what the installed PyTorch chooses on the GPU.")
    ] = "native",
    compiled: Annotated[bool, typer.Option("--compiled", help="For compiled blocks.")] = False,
    as_json: AsJson = False,
) -> None:
    """Predict what a video costs, without weights and without a GPU."""
    from galaxydit.eval.cost import cost_estimate as cost
    from galaxydit.eval.cost.cost_rows import estimate_table

    request = Request(speedup=speedup, quality=cast(QualityName | None, quality))  # checks the word
    made = cost.estimate(
        model, gpu=gpu, speedup=request.planned_speedup, size=size, frames=frames,
        steps=steps, gpus=gpus, ring=ring, videos=videos, price=price, attention=attention, compiled=compiled,
    )  # fmt: skip
    if as_json:
        show_json(made.to_dict())
        return
    show(headline(made), estimate_table(made), *conclusions(made), *(f"  {source}" for source in made.sources), "")
    text = "These are predictions; nothing was generated, and nothing here says how close the videos are to plain ones."
    measure = ["validate", "--model", model, "--out", "runs/validate", "--dry-run"]
    conclude([], text, NextCommand("time some steps on your machine; without --dry-run it makes the video", measure))


def headline(made: "Estimate") -> str:
    """One line on what is predicted: model, GPUs, size, frames and steps."""
    where = made.gpu if made.gpus == 1 else f"{made.gpus} {made.gpu} ({made.split})"
    shape = f"{made.width}x{made.height}, {made.frames} frames, {made.steps} steps"
    blocks = "compiled" if made.compiled else "eager"
    return f"{made.model} on {where}, {shape}, {blocks}: predicted for one video, not measured"


def conclusions(made: "Estimate") -> list[str]:
    """Lines on the cost of all videos, the plugin's savings, and a video that does not fit into one GPU's memory."""
    from galaxydit.eval.cost.cost_estimate import BYTES_PER_PIXEL

    lines = []
    size = made.videos * made.width * made.height * made.frames * BYTES_PER_PIXEL["h264"]
    for name, cost in (("plain", made.plain), ("with the plugin", made.accelerated)):
        if made.videos > 1 and cost is not None:
            total = made.videos * cost.batch_latency_s.value
            joules = made.videos * cost.energy_per_video_joules.value
            price = None if cost.price is None else cost.price.value
            text = amounts(total, gpus=made.gpus, joules=joules, price=price, size=size)
            lines.append(f"{made.videos:,} videos, {name}: {text}")
    if made.accelerated is not None and made.saved_joules is not None:
        plain, faster = made.plain.batch_latency_s.value, made.accelerated.batch_latency_s.value
        share = made.saved_joules / made.plain.energy_per_video_joules.value
        each = f"saves {made.saved_joules / 1000:.3g} kJ ({share:.0%}) and {plain - faster:.3g} s for each video"
        lines.append(f"the plugin at {made.speedup:g}x by compute {each}")
    lines += made.notes
    if not made.fits:
        lines.append(f"the expected peak memory exceeds one {made.gpu}: offload, or take a smaller size")
    return lines
