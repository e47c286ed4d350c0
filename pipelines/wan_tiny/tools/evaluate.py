"""Measure the numbers of wan-tiny's model card: `python -m galaxydit.pipelines.wan_tiny.tools.evaluate --prompts 8`.

Every prompt is a caption that training never showed, with its own seed. The seconds of a generation are not measured
here, but by `galaxydit demo`.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import numpy as np
import torch
import typer
from numpy.typing import NDArray
from rich.console import Console
from tqdm import tqdm

from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.loading import load_pipeline
from galaxydit.pipelines.model_names import EMBEDDED
from galaxydit.pipelines.psnr import psnr
from galaxydit.pipelines.published_models import WAN_TINY
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.table import Table
from galaxydit.pipelines.wan_tiny.detect import caption_agreement
from galaxydit.pipelines.wan_tiny.tools import drawing
from galaxydit.pipelines.wan_tiny.world import DIRECTIONS, draw_prompts

CLIP_SEED = 2  # of the clips for the autoencoder; training drew its own with seed 1

Frames = NDArray[np.float32]


@torch.no_grad()
def reconstruct(vae: Any, frames: Frames) -> Frames:
    """A clip `(frames, height, width, 3)` in [0, 1], encoded to the mode of the latents and decoded."""
    video = torch.from_numpy(frames).permute(3, 0, 1, 2)[None].to(vae.device, vae.dtype) * 2 - 1
    decoded = vae.decode(vae.encode(video).latent_dist.mode()).sample
    return np.asarray((decoded[0].float() / 2 + 0.5).clamp(0, 1).permute(1, 2, 3, 0).cpu().numpy())


def findings(frames: Frames, caption: str) -> Iterator[tuple[str, bool]]:
    """What the detector finds of the caption's clauses, by figure; a direction is also a motion."""
    for found in caption_agreement(frames, caption):
        yield "colour agreement", found.colour_found
        yield "motion agreement" if found.clause.motion else "stillness agreement", found.motion_found
        if found.clause.motion in DIRECTIONS:
            yield "direction agreement", found.motion_found


def evaluate(pipe: Any, count: int, seed: int = 0, settings: GenerationSettings = WAN_TINY) -> dict[str, list[float]]:
    """The figures of the model card on `count` unseen prompts: PSNRs of prompts in dB, and findings of clauses.

    The autoencoder rebuilds unseen clips; half the steps are compared with all.
    """
    figures: dict[str, list[float]] = defaultdict(list)
    half = replace(settings, steps=max(1, (settings.steps or 50) // 2))
    for index, prompt in enumerate(tqdm(draw_prompts(count, seed))):
        whole, halved = (generate(pipe, prompt, way, seed + index).frames for way in (settings, half))
        _, clip = drawing.draw_clip(index, CLIP_SEED + seed, held_out=True)
        figures["VAE reconstruction, dB"].append(psnr(reconstruct(pipe.vae, clip), clip))
        figures["half the steps against all, dB"].append(psnr(halved, whole))
        for name, holds in findings(whole, prompt):
            figures[name].append(float(holds))
    return figures


def main(
    model: Annotated[Path, typer.Option(help="Folder of a saved pipeline.")] = EMBEDDED["wan-tiny"],
    prompts: Annotated[int, typer.Option(min=1, help="Number of unseen captions.")] = 64,
    seed: Annotated[int, typer.Option(help="Of the prompts and of the noise.")] = 0,
) -> None:
    """Measure the numbers of wan-tiny's model card."""
    pipe = load_pipeline(model)
    pipe.set_progress_bar_config(disable=True)
    figures = evaluate(pipe, prompts, seed)
    rows = [(name, f"{fmean(values):.3f}", str(len(values))) for name, values in sorted(figures.items())]
    Console().print(Table(("figure", "value", "n"), rows))


if __name__ == "__main__":
    typer.run(main)
