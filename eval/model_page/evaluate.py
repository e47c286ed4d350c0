"""Measure the figures of wan-tiny's page: `python -m galaxydit.eval.model_page.evaluate --out FOLDER`.

Every caption is one that training never showed, with a seed of its own, and is generated in float32. A row for each
caption is written when it is measured, so that the command goes on after an interruption.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from numpy.typing import NDArray
from rich.console import Console
from tqdm import tqdm

from galaxydit.calibration.generation_observer import observed
from galaxydit.calibration.recording import Recording
from galaxydit.eval.measured_rows import bind_folder
from galaxydit.eval.model_page.evaluation_figures import Figure, figures_of
from galaxydit.eval.model_page.in_parallel import Processes, mapped
from galaxydit.eval.model_page.measured_model import SHIPPED, Folder, Weights, load_measured
from galaxydit.eval.model_page.observed_blocks import observed_blocks
from galaxydit.files import replacing
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.psnr import psnr
from galaxydit.pipelines.published_models import WAN_TINY
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.table import Table
from galaxydit.pipelines.video import save_video
from galaxydit.pipelines.wan_tiny.detect import MIN_CHROMA, caption_agreement
from galaxydit.pipelines.wan_tiny.shapes import shape_agreement
from galaxydit.pipelines.wan_tiny.tools import drawing
from galaxydit.pipelines.wan_tiny.world import draw_prompts
from galaxydit.validation import parse

CLIP_SEED = 2  # of the clips for the autoencoder; training drew its own with seed 1

Frames = NDArray[np.float32]


@torch.no_grad()
def reconstruct(vae: Any, frames: Frames) -> Frames:
    """A clip `(frames, height, width, 3)` in [0, 1], encoded to the mode of the latents and decoded."""
    video = torch.from_numpy(frames).permute(3, 0, 1, 2)[None].to(vae.device, vae.dtype) * 2 - 1
    decoded = vae.decode(vae.encode(video).latent_dist.mode()).sample
    return np.asarray((decoded[0].float() / 2 + 0.5).clamp(0, 1).permute(1, 2, 3, 0).cpu().numpy())


def findings(frames: Frames, caption: str) -> list[dict[str, Any]]:
    """What the detectors find of each of the caption's clauses."""
    rows = []
    for agreement, shape_found in zip(
        caption_agreement(frames, caption), shape_agreement(frames, caption), strict=True
    ):
        rows.append(
            {
                "clause": str(agreement.clause),
                "motion": agreement.clause.motion,
                "colour_found": agreement.colour_found,
                "motion_found": agreement.motion_found,
                "shape_found": shape_found,
            }
        )
    return rows


def grey_contrast(frames: Frames) -> float:
    """Standard deviation of the grey pixels of a clip: of its background, without the coloured objects."""
    is_grey = np.ptp(frames, axis=-1) < MIN_CHROMA
    return float(frames.mean(axis=-1)[is_grey].std())


def measure(
    pipe: Any, caption: str, seed: int, index: int, settings: GenerationSettings
) -> tuple[dict[str, Any], Frames]:
    """The row of one caption as JSON data, and its video `(frames, height, width, 3)` in [0, 1]."""
    with observed_blocks(pipe) as blocks, observed(pipe) as observer:
        frames = generate(pipe, caption, settings, seed).frames
    half = replace(settings, steps=max(1, (settings.steps or 50) // 2))
    _, clip = drawing.draw_clip(index, CLIP_SEED, held_out=True)
    row = {
        "caption": caption,
        "seed": seed,
        "clauses": findings(frames, caption),
        "grey_contrast": grey_contrast(frames),
        "reconstruction_db": psnr(reconstruct(pipe.vae, clip), clip),
        "half_the_steps_db": psnr(generate(pipe, caption, half, seed).frames, frames),
        "branch_difference": blocks.branch_difference,
        "word_share": blocks.word_share,
        "recording": asdict(observer.recording(caption, seed)),
    }
    return json.loads(json.dumps(row)), frames


@dataclass(frozen=True)
class CaptionTask:
    """What one process measures: one caption in a pipeline of `load_measured`."""

    caption: str
    seed: int
    index: int
    out: Path
    model: Path
    transformer: Path | None


def in_process(task: CaptionTask) -> None:
    pipe = load_measured(task.model, task.transformer)
    evaluate(pipe, task.caption, task.seed, task.index, task.out, WAN_TINY)


def evaluate(pipe: Any, caption: str, seed: int, index: int, out: Path, settings: GenerationSettings) -> None:
    """Write the row and the video of a caption, unless `out` has them."""
    path = out / f"caption-{index:02d}.json"
    if path.exists():
        return
    row, frames = measure(pipe, caption, seed, index, settings)
    save_video(frames, path.with_suffix(".mp4"), settings.fps)
    with replacing(path) as unfinished:
        unfinished.write_text(json.dumps(row), encoding="utf-8")


def without_recording(row: dict[str, Any]) -> dict[str, Any]:
    """The row with the curves of its recording alone: what each proxy and the guided prediction change by step."""
    recording = parse(Recording, row["recording"], "recording")
    change = [round(float(value), 6) for value in recording.guided_change(1)[1:]]
    curves = {"change": change, "distances": row["recording"]["distances"]}
    return {name: value for name, value in row.items() if name != "recording"} | curves


def main(
    out: Annotated[Path, typer.Option(help="Folder of the rows, the videos and figures.json.")],
    model: Folder = SHIPPED,
    transformer: Weights = None,
    prompts: Annotated[int, typer.Option(min=2, help="Number of unseen captions.")] = 48,
    seed: Annotated[int, typer.Option(help="Of the captions; the noise has seeds from 1000 times it on.")] = 4,
    processes: Processes = 1,
) -> None:
    """Measure the figures of wan-tiny's page."""
    bind_folder(out, load_measured(model, transformer))
    captions = draw_prompts(prompts, seed)
    tasks = [
        CaptionTask(text, 1000 * seed + place, place, out, model, transformer) for place, text in enumerate(captions)
    ]
    for _ in tqdm(mapped(in_process, tasks, processes), "captions", len(tasks)):
        pass
    paths = [out / f"caption-{index:02d}.json" for index in range(prompts)]
    rows = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    figures = figures_of(rows)
    content = {"rows": [without_recording(row) for row in rows], "figures": [asdict(figure) for figure in figures]}
    with replacing(out / "figures.json") as unfinished:
        unfinished.write_text(json.dumps(content) + "\n", encoding="utf-8")
    Console().print(table_of(figures))


def table_of(figures: Sequence[Figure]) -> Table:
    rows = [(figure.name, f"{figure.value:.3g}", figure.interval_text, str(figure.count)) for figure in figures]
    return Table(("figure", "value", "95 % interval", "n"), rows)


if __name__ == "__main__":
    typer.run(main)
