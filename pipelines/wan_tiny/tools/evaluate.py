"""Measure the figures of wan-tiny's model card: `python -m galaxydit.pipelines.wan_tiny.tools.evaluate --out FILE`.

Every prompt is a caption that training never showed, with its own seed. What was measured for a prompt is kept in a
JSONL file beside the result, so that a killed run goes on where it was; records of other weights or settings are
dropped.
"""

import argparse
import hashlib
import json
import logging
import platform
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import diffusers
import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from rich.console import Console
from tqdm import tqdm

from galaxydit.pipelines.generate import generate, generate_batch
from galaxydit.pipelines.loading import load_pipeline
from galaxydit.pipelines.model_names import EMBEDDED
from galaxydit.pipelines.psnr import psnr
from galaxydit.pipelines.published_models import WAN_TINY
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.wan_tiny import world
from galaxydit.pipelines.wan_tiny.detect import caption_agreement
from galaxydit.pipelines.wan_tiny.tools import drawing
from galaxydit.pipelines.wan_tiny.tools.figures import Figure, Record, as_table, summarise

logger = logging.getLogger(__name__)

CLIP_SEED = 2  # of the clips for the autoencoder; training drew its own with seed 1
TIMED_RUNS = 3

Frames = NDArray[np.float32]


@torch.no_grad()
def reconstruct(vae: Any, frames: Frames) -> Frames:
    """A clip `(frames, height, width, 3)` in [0, 1], encoded (the mode, without sampling) and decoded again."""
    video = torch.from_numpy(frames).permute(3, 0, 1, 2)[None].to(vae.device, vae.dtype) * 2 - 1
    decoded = vae.decode(vae.encode(video).latent_dist.mode()).sample
    return np.asarray((decoded[0].float() / 2 + 0.5).clamp(0, 1).permute(1, 2, 3, 0).cpu().numpy())


def evaluate_batch(
    pipe: Any, prompts: list[str], indices: list[int], seed: int, settings: GenerationSettings
) -> list[Record]:
    """One record a prompt with all that does not depend on the machine's speed."""
    seeds = [seed + index for index in indices]
    clips = generate_batch(pipe, prompts, seeds, settings)
    unguided = generate_batch(pipe, prompts, seeds, replace(settings, guidance_scale=1.0))
    halved = generate_batch(pipe, prompts, seeds, replace(settings, steps=max(1, (settings.steps or 50) // 2)))
    records = []
    for position, (prompt, index) in enumerate(zip(prompts, indices, strict=True)):
        caption, frames = drawing.draw_clip(index, CLIP_SEED + seed, held_out=True)
        rebuilt = reconstruct(pipe.vae, frames)
        records.append(
            {
                "index": index,
                "prompt": prompt,
                "seed": seeds[position],
                "vae_psnr": psnr(rebuilt, frames),
                "rebuilt": clause_findings(rebuilt, caption),
                "guided": clause_findings(clips[position], prompt),
                "unguided": clause_findings(unguided[position], prompt),
                "half_steps_psnr": psnr(halved[position], clips[position]),
            }
        )
    return records


def clause_findings(frames: Frames, caption: str) -> list[Record]:
    """What the detector says of each clause, ready for JSON."""
    return [
        {"motion": finding.clause.motion, "colour_found": finding.colour_found, "motion_found": finding.motion_found}
        for finding in caption_agreement(frames, caption).clauses
    ]


@contextmanager
def transformer_seconds(pipe: Any) -> Iterator[list[float]]:
    """Within the context, the seconds of each transformer call are appended to the list."""
    seconds: list[float] = []
    starts: list[float] = []

    def now() -> float:
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        return time.perf_counter()

    before = pipe.transformer.register_forward_pre_hook(lambda module, inputs: starts.append(now()))
    after = pipe.transformer.register_forward_hook(lambda module, inputs, output: seconds.append(now() - starts.pop()))
    try:
        yield seconds
    finally:
        before.remove()
        after.remove()


def time_generation(pipe: Any, prompt: str, settings: GenerationSettings) -> tuple[float, float]:
    """Median seconds of one generation at batch 1, and the median share of it spent in the transformer."""
    generate(pipe, prompt, replace(settings, steps=2), seed=0)  # the first calls set up memory and kernels
    runs = []
    for seed in tqdm(range(TIMED_RUNS), desc="timing"):
        with transformer_seconds(pipe) as seconds:
            whole = generate(pipe, prompt, settings, seed).end_to_end_seconds
        runs.append((whole, sum(seconds) / whole))
    return statistics.median(whole for whole, _ in runs), statistics.median(share for _, share in runs)


def fingerprint(folder: Path, settings: GenerationSettings, seed: int) -> str:
    """Changes with any weight, configuration or setting, so that records of another model are never mixed in."""
    digest = hashlib.sha256(json.dumps([asdict(settings), seed]).encode())
    for path in sorted(path for path in folder.rglob("*") if path.suffix in (".json", ".safetensors")):
        digest.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def load_records(path: Path, mark: str) -> dict[int, Record]:
    """Records with this fingerprint by index. A line torn by a kill and records of anything else leave the file."""
    records: dict[int, Record] = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            logger.warning("dropped a torn line of %s", path)
            continue
        if record["fingerprint"] == mark:
            records[record["index"]] = record
    path.write_text("".join(json.dumps(record) + "\n" for record in records.values()))
    return records


def evaluate(
    folder: Path, count: int, out: Path, *, batch: int = 1, seed: int = 0, settings: GenerationSettings = WAN_TINY
) -> list[Figure]:
    """Measure a saved pipeline on `count` unseen prompts and write the figures to `out`, a JSON file.

    Raises FileNotFoundError for a folder without a pipeline, ValueError for a count or batch under 1.
    """
    if count < 1 or batch < 1:
        raise ValueError(f"prompts are {count} and batch is {batch}, allowed are integers from 1")
    pipe = load_pipeline(folder)
    pipe.set_progress_bar_config(disable=True)
    prompts = world.draw_prompts(count, seed)
    out.parent.mkdir(parents=True, exist_ok=True)
    mark, journal = fingerprint(folder, settings, seed), out.with_suffix(".jsonl")
    records = load_records(journal, mark)
    todo = [index for index in range(count) if index not in records]
    with tqdm(total=count, initial=count - len(todo), desc="prompts") as bar:
        for start in range(0, len(todo), batch):
            indices = todo[start : start + batch]
            fresh = evaluate_batch(pipe, [prompts[index] for index in indices], indices, seed, settings)
            with journal.open("a") as file:
                for record in fresh:
                    records[record["index"]] = record | {"fingerprint": mark}
                    file.write(json.dumps(records[record["index"]]) + "\n")
            bar.update(len(indices))
    seconds, share = time_generation(pipe, prompts[0], settings)
    figures = summarise((records[index] for index in range(count)), seconds, share, TIMED_RUNS)
    out.write_text(json.dumps(describe(figures, pipe, mark, count, seed, batch, settings), indent=2) + "\n")
    return figures


def describe(
    figures: list[Figure], pipe: Any, mark: str, count: int, seed: int, batch: int, settings: GenerationSettings
) -> Record:
    """All that someone needs to judge and to repeat the figures."""
    return {
        "figures": [asdict(figure) | {"holds": figure.holds} for figure in figures],
        "settings": asdict(settings) | {"prompts": count, "seed": seed, "batch": batch, "timing_batch": 1},
        "fingerprint": mark,
        "device": torch.cuda.get_device_name() if pipe.device.type == "cuda" else platform.machine(),
        "threads": torch.get_num_threads(),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "diffusers": diffusers.__version__,
            "transformers": transformers.__version__,
            "numpy": np.__version__,
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=EMBEDDED["wan-tiny"], help="folder of a saved pipeline")
    parser.add_argument("--prompts", type=int, default=64, help="how many unseen captions")
    parser.add_argument("--batch", type=int, default=1, help="prompts generated at once; timing is always at one")
    parser.add_argument("--seed", type=int, default=0, help="of the prompts and of the noise")
    parser.add_argument("--out", type=Path, default=Path("runs/wan-tiny/evaluation.json"))
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    figures = evaluate(arguments.model, arguments.prompts, arguments.out, batch=arguments.batch, seed=arguments.seed)
    Console().print(as_table(figures))


if __name__ == "__main__":
    main()
