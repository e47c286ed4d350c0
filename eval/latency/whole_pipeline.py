"""Seconds, joules and peak memory of Wan2.1's whole pipeline, on random weights of its true shapes.

`python -m galaxydit.eval.latency.whole_pipeline --out eval/results/pipeline-1.3B-480p.json` builds Wan2.1's text
encoder, transformer and autoencoder with random weights, and generates one video plain and one for each of --speedups
with `accelerate(speedup=...)` and the general schedule; with `--calibrate` it measures each stage of a calibration
instead. Time does not depend on the values of the weights; the videos are noise, so they say nothing about quality.
With real weights, `galaxydit validate` measures both.
"""

import argparse
import logging
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from diffusers import AutoencoderKLWan, UniPCMultistepScheduler, WanPipeline
from transformers import AutoTokenizer, UMT5Config, UMT5EncoderModel

from galaxydit.calibration.budget import read_budget
from galaxydit.calibration.calibration import calibrate
from galaxydit.eval.latency.model_shapes import PRESETS, Preset, parse_size
from galaxydit.eval.latency.random_models import build_transformer, building
from galaxydit.foreign_text import logger_of
from galaxydit.pipelines.additions import compile_blocks
from galaxydit.pipelines.conditions import product_name
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.model_names import EMBEDDED
from galaxydit.pipelines.own_files import check_replaceable, own_json
from galaxydit.pipelines.published_models import WAN_21_1_3B, WAN_21_14B
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.trial import accelerated, generate_with, plain, result_of
from galaxydit.pipelines.written_by import WHOLE_PIPELINE, write_own_json
from galaxydit.stopwatch import BEGIN, END, Stopwatch

logger = logger_of(__name__)
PROMPT = "a red ball moves left over a plain background"
UMT5_XXL = {"vocab_size": 256384, "d_model": 4096, "d_kv": 64, "d_ff": 10240, "num_layers": 24, "num_heads": 64}
BETWEEN = "between"  # the stages of a calibration, such as planning
SETTINGS = {"1.3B": WAN_21_1_3B, "14B": WAN_21_14B, "tiny": WAN_21_1_3B}


@dataclass(frozen=True)
class PipelineShape:
    """Shapes of the parts of a pipeline; the autoencoder is the class of diffusers with these arguments."""

    transformer: Preset
    text_encoder: Mapping[str, int] = field(default_factory=lambda: UMT5_XXL)
    autoencoder: Mapping[str, Any] = field(default_factory=dict)  # empty: Wan2.1's


SHAPES = {
    "1.3B": PipelineShape(PRESETS["1.3B"]),
    "14B": PipelineShape(PRESETS["14B"]),
    "tiny": PipelineShape(  # for tests of the commands
        Preset(blocks=2, heads=2, head_dim=16, ffn_dim=32, text_dim=16),
        {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2},
        {"base_dim": 8},
    ),
}


def build_pipeline(model: str, device: torch.device) -> WanPipeline:
    """Wan2.1's pipeline with random weights on `device`: bfloat16, and float32 for the autoencoder.

    `model` is a key of `SHAPES`. The tokenizer is wan-tiny's, because the published one is a file of the real model.
    The scheduler is UniPC, whose flow shift `generate` sets.
    """
    shape = SHAPES[model]
    transformer = build_transformer(shape.transformer, device, torch.bfloat16)
    with building(device, torch.bfloat16):
        text_encoder = UMT5EncoderModel(UMT5Config(**shape.text_encoder)).eval()
    with building(device, torch.float32):
        vae = AutoencoderKLWan(**shape.autoencoder).eval()
    tokenizer = AutoTokenizer.from_pretrained(EMBEDDED["wan-tiny"] / "tokenizer")
    scheduler = UniPCMultistepScheduler.from_pretrained(EMBEDDED["wan-tiny"], subfolder="scheduler")
    return WanPipeline(tokenizer, text_encoder, vae, scheduler, transformer)


def begin(device: torch.device) -> Stopwatch:
    """A stopwatch that begins now, with a new count of the peak memory."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    watch = Stopwatch(device, device)
    watch.mark(BEGIN)
    return watch


def peak_bytes(device: torch.device) -> int | None:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return None


def measure(pipe: WanPipeline, settings: GenerationSettings, speedup: float | None) -> dict[str, Any]:
    """The `TrialResult` of one video, plain if `speedup` is None, with "speedup" and, on a GPU, "peak_bytes"."""
    device = pipe._execution_device
    begin(device)
    if speedup is None:
        attach = plain
    else:
        attach = partial(accelerated, speedup=speedup)
    result = asdict(result_of(pipe, generate_with(pipe, PROMPT, settings, 0, attach)))
    return {"speedup": speedup, "peak_bytes": peak_bytes(device), **result}


def measure_stages(
    pipe: WanPipeline,
    settings: GenerationSettings,
    budget: str,
    write: Callable[[list[dict[str, Any]]], None],
    folder: Path,
    before: Callable[[str], None] = lambda stage: None,
) -> list[dict[str, Any]]:
    """Calibrate, and after each part of a stage `write` what every one took so far; returns all of them.

    `folder` keeps the finished parts. `before` is called with the name of a stage before each of its parts, and may
    raise to end the calibration.
    """
    device = pipe._execution_device
    stages: list[dict[str, Any]] = []
    watch = begin(device)

    def note(what: str, stage: str = BETWEEN) -> None:
        nonlocal watch
        watch.mark(END)
        joules = watch.joules(BEGIN, END)
        if joules is not None and math.isnan(joules):
            joules = None
        took = {"seconds": watch.seconds(BEGIN, END), "joules": joules}
        stages.append({"stage": stage, "what": what, **took, "peak_bytes": peak_bytes(device)})
        write(stages)
        watch = begin(device)

    def progress(stage: str, done: int, total: int) -> None:
        note(f"{stage} {done}/{total}", stage if done else BETWEEN)
        if done < total:
            before(stage)

    calibrate(pipe, resume_dir=folder, budget=read_budget(budget), settings=settings, say=note, progress=progress)
    note("end")
    return stages


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=SETTINGS, default="1.3B")
    parser.add_argument("--size", default="480p", help="480p, 720p or WIDTHxHEIGHTxFRAMES")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--out", type=Path, required=True, help="the JSON to write, anew after each measurement")
    parser.add_argument("--speedups", type=float, nargs="+", default=[2.0, 3.0])
    parser.add_argument("--compile", action="store_true", help="torch.compile the blocks")
    parser.add_argument("--calibrate", action="store_true", help="measure a calibration instead of videos")
    parser.add_argument("--budget", default="", help="of the calibration, as of `galaxydit calibrate`")
    parser.add_argument("--force", action="store_true", help="replace a file that this command did not write")
    given = parser.parse_args(arguments)
    check_replaceable(given.out, "--out", own_json(WHOLE_PIPELINE), force=given.force)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    size = parse_size(given.size)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    settings = replace(
        SETTINGS[given.model], height=size.height, width=size.width, num_frames=size.frames, steps=given.steps
    )
    torch.manual_seed(0)
    pipe = build_pipeline(given.model, device)
    if given.compile:
        compile_blocks(pipe)
    run = {"model": given.model, "device": product_name(device), "steps": given.steps, "compiled": given.compile}
    if given.calibrate:
        pipe.set_progress_bar_config(disable=True)

        def write(stages: Any) -> None:
            write_own_json(given.out, WHOLE_PIPELINE, run | {"stages": stages})

        with tempfile.TemporaryDirectory() as folder:
            measure_stages(pipe, settings, given.budget, write, Path(folder))
        return
    generate(pipe, PROMPT, replace(settings, steps=1), seed=0)  # warm-up of every component
    rows: list[dict[str, Any]] = []
    for speedup in (None, *given.speedups):
        rows.append(measure(pipe, settings, speedup))
        logger.info("%s", rows[-1])
        write_own_json(given.out, WHOLE_PIPELINE, run | {"rows": rows})


if __name__ == "__main__":
    main()
