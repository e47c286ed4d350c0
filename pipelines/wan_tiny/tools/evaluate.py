"""Measure the numbers of wan-tiny's model card: `python -m galaxydit.pipelines.wan_tiny.tools.evaluate --out FILE`.

Every prompt is a caption that training never showed, with its own seed. After a kill, the same command goes on with the
prompt that was not finished. The seconds of a generation are not measured here, but by `galaxydit demo`.
"""

import argparse
import json
import logging
import platform
from collections.abc import Container, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console

from galaxydit.errors import check_count
from galaxydit.pipelines.conditions import conditions_of, device_name, package_versions
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.loading import load_pipeline
from galaxydit.pipelines.model_names import EMBEDDED
from galaxydit.pipelines.psnr import psnr
from galaxydit.pipelines.published_models import WAN_TINY
from galaxydit.pipelines.runs import LiveProgress, Maker, Output, Store, Unit, hash_of, results, run
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.table import Table, number
from galaxydit.pipelines.wan_tiny.detect import caption_agreement
from galaxydit.pipelines.wan_tiny.tools import drawing
from galaxydit.pipelines.wan_tiny.world import DIRECTIONS, MOTIONS, draw_prompts

CLIP_SEED = 2  # of the clips for the autoencoder; training drew its own with seed 1

Frames = NDArray[np.float32]
Record = dict[str, Any]


@dataclass(frozen=True)
class Figure:
    """The mean over `n` clauses or prompts, None without any, and its target."""

    name: str
    value: float | None
    n: int
    minimum: float | None = None

    @property
    def holds(self) -> bool | None:
        """Whether the target is met; None without a value or a target."""
        return None if self.value is None or self.minimum is None else self.value >= self.minimum

    @property
    def target(self) -> str:
        return "" if self.minimum is None else f">= {self.minimum:g}"


@torch.no_grad()
def reconstruct(vae: Any, frames: Frames) -> Frames:
    """A clip `(frames, height, width, 3)` in [0, 1], encoded to the mode of the latents and decoded."""
    video = torch.from_numpy(frames).permute(3, 0, 1, 2)[None].to(vae.device, vae.dtype) * 2 - 1
    decoded = vae.decode(vae.encode(video).latent_dist.mode()).sample
    return np.asarray((decoded[0].float() / 2 + 0.5).clamp(0, 1).permute(1, 2, 3, 0).cpu().numpy())


def evaluate_prompt(pipe: Any, prompt: str, index: int, seed: int, settings: GenerationSettings) -> Record:
    """A record for JSON: PSNRs in dB, and the detector's findings with and without guidance.

    `half_steps_psnr` is of half the steps against all; `vae_psnr` and `rebuilt` are of an unseen clip that the
    autoencoder has rebuilt. `index` is the prompt's in the whole evaluation, added to `seed`.
    """
    half = replace(settings, steps=max(1, (settings.steps or 50) // 2))
    ways = (settings, replace(settings, guidance_scale=1.0), half)
    guided, unguided, halved = (generate(pipe, prompt, way, seed + index).frames for way in ways)
    caption, frames = drawing.draw_clip(index, CLIP_SEED + seed, held_out=True)
    rebuilt = reconstruct(pipe.vae, frames)
    return {
        "index": index,
        "prompt": prompt,
        "seed": seed + index,
        "vae_psnr": psnr(rebuilt, frames),
        "rebuilt": clause_findings(rebuilt, caption),
        "guided": clause_findings(guided, prompt),
        "unguided": clause_findings(unguided, prompt),
        "half_steps_psnr": psnr(halved, guided),
    }


def clause_findings(frames: Frames, caption: str) -> list[Record]:
    """Each clause's motion word ("" if still), and whether the clip shows its colour and motion, for JSON."""
    return [
        {"motion": finding.clause.motion, "colour_found": finding.colour_found, "motion_found": finding.motion_found}
        for finding in caption_agreement(frames, caption).clauses
    ]


class Evaluation(Maker):
    """Makes units that measure one prompt with `evaluate_prompt`."""

    def __init__(self, pipe: Any, prompts: list[str], seed: int, settings: GenerationSettings) -> None:
        self.pipe, self.prompts, self.seed, self.settings = pipe, prompts, seed, settings

    def make(self, unit: Unit) -> Output:
        index = unit.data["index"]
        return Output(evaluate_prompt(self.pipe, self.prompts[index], index, self.seed, self.settings))


def evaluate(
    folder: Path, count: int, out: Path, *, seed: int = 0, settings: GenerationSettings = WAN_TINY
) -> list[Figure]:
    """Measure the pipeline in `folder` on `count` unseen prompts, and return the figures of the model card.

    They are also written to `out`, JSON; finished prompts are kept beside it in .parts. Raises FileNotFoundError for a
    folder without a pipeline, GalaxyDiTError for a count under 1.
    """
    check_count("count", count, minimum=1)
    pipe = load_pipeline(folder)
    pipe.set_progress_bar_config(disable=True)
    store = Store(out.with_suffix(".parts")).create("evaluation of wan-tiny", {})
    mark = hash_of({**conditions_of(pipe, settings), "seed": seed})
    units = [Unit(f"prompt-{index:04d}", {"fingerprint": mark, "index": index}) for index in range(count)]
    with LiveProgress() as progress:
        maker = Evaluation(pipe, draw_prompts(count, seed), seed, settings)
        run(units, maker, store, progress=progress, retry_failed=True)
    figures = figures_of(results(units, store))
    result = {
        "figures": [asdict(figure) | {"holds": figure.holds} for figure in figures],
        "settings": asdict(settings) | {"prompts": count, "seed": seed},
        "fingerprint": mark,
        "device": device_name(pipe),
        "threads": torch.get_num_threads(),
        "versions": {"python": platform.python_version()} | package_versions(),
    }
    out.write_text(json.dumps(result, indent=2) + "\n")
    return figures


def figures_of(records: Sequence[Record]) -> list[Figure]:
    """The figures of the model card: agreements are shares of clauses, PSNRs means over prompts in dB."""

    def over_clauses(name: str, kind: str, finding: str, motions: Container[str], **target: float) -> Figure:
        holds = [row[finding] for record in records for row in record[kind] if row["motion"] in motions]
        return Figure(name, fmean(holds) if holds else None, len(holds), **target)

    def over_prompts(name: str, key: str, **target: float) -> Figure:
        return Figure(name, fmean(record[key] for record in records), len(records), **target)

    figures = [over_prompts("VAE reconstruction, dB", "vae_psnr")]
    names = {"guided": "", "unguided": " without guidance", "rebuilt": " of reconstructions"}
    for kind, suffix in names.items():
        aims = {"minimum": 0.85} if kind == "guided" else {}
        every = (*MOTIONS, "")
        figures += [
            over_clauses("colour agreement" + suffix, kind, "colour_found", every, **aims),
            over_clauses("direction agreement" + suffix, kind, "motion_found", DIRECTIONS, **aims),
            over_clauses("motion agreement" + suffix, kind, "motion_found", MOTIONS),
            over_clauses("stillness agreement" + suffix, kind, "motion_found", ("",)),
        ]
    return [*figures, over_prompts("half the steps against all, dB", "half_steps_psnr")]


def as_table(figures: list[Figure]) -> Table:
    words = {None: "", True: "yes", False: "NO"}
    rows = [(each.name, number(each.value, ".3f"), str(each.n), each.target, words[each.holds]) for each in figures]
    return Table(("figure", "value", "n", "target", "holds"), rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=EMBEDDED["wan-tiny"], help="folder of a saved pipeline")
    parser.add_argument("--prompts", type=int, default=64, help="how many unseen captions")
    parser.add_argument("--seed", type=int, default=0, help="of the prompts and of the noise")
    parser.add_argument("--out", type=Path, default=Path("runs/wan-tiny/evaluation.json"))
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    figures = evaluate(arguments.model, arguments.prompts, arguments.out, seed=arguments.seed)
    Console().print(as_table(figures))


if __name__ == "__main__":
    main()
