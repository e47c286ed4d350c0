"""Part a: the whole pipeline of Wan2.1-T2V-1.3B at 480p, plain and at 2x and 3x, in interleaved rounds."""

import time
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from diffusers import WanPipeline

from galaxydit.eval.gpu.measured_video import PLAIN, SPEEDUPS, Scale, video_row
from galaxydit.eval.gpu.random_pipeline import SETTINGS, build_pipeline
from galaxydit.eval.gpu.turns import MeasuredPart, Turn
from galaxydit.eval.latency.model_shapes import parse_size
from galaxydit.pipelines.additions import compile_blocks
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.stopwatch import synchronize

MODEL = "1.3B"
SIZE = "480p"
STEPS = 50
TINY_STEPS = 26  # the fewest of which the general schedule reuses some
WARM_UP_STEPS = 2
H100_SECONDS = {PLAIN: 58.0, "2x": 32.0, "3x": 23.5}  # eval/results/gpu/pipeline-1.3B-480p-compiled-H100.json


class BuiltPipeline:
    """Wan2.1's pipeline of random weights on the device, built when it is first used."""

    def __init__(self, scale: Scale, steps: int) -> None:
        self.scale = scale
        size = parse_size(scale.size(SIZE))
        self.settings: GenerationSettings = replace(
            SETTINGS[scale.model(MODEL)], height=size.height, width=size.width, num_frames=size.frames, steps=steps
        )

    @cached_property
    def pipe(self) -> WanPipeline:
        pipe = build_pipeline(self.scale.model(MODEL), self.scale.device)
        pipe.set_progress_bar_config(disable=True)
        return pipe

    def prepare(self, *, compiled: bool) -> dict[str, Any]:
        """Build, compile the blocks and warm up; the row says what each took.

        The first call compiles for all variants, because the plugin changes nothing within a block. The second call is
        accelerated, so that its own first use is no part of a measured row.
        """
        start = time.monotonic()
        pipe = self.pipe
        synchronize(self.scale.device)
        build_seconds = time.monotonic() - start
        if compiled:
            compile_blocks(pipe)
        few = replace(self.settings, steps=WARM_UP_STEPS)
        first = video_row(pipe, few, PLAIN)
        second = video_row(pipe, few, "2x", decode=False)
        return {
            "compiled": compiled,
            "build_seconds": build_seconds,
            "first_denoise_seconds": first["seconds"]["denoising"],
            "second_denoise_seconds": second["seconds"]["denoising"],
            "graphs_compiled": first["graphs_compiled"] + second["graphs_compiled"],
        }


def pipeline_part(scale: Scale, rounds: int, *, eager: bool) -> MeasuredPart:
    """Part a; the text encoder and the autoencoder are those of the published model, with random weights."""
    built = BuiltPipeline(scale, TINY_STEPS if scale.tiny else STEPS)

    def measure(variant: str) -> dict[str, Any]:
        return {"model": scale.model(MODEL), "compiled": not eager} | video_row(built.pipe, built.settings, variant)

    turns = []
    for turn in range(1, rounds + 1):
        for variant in SPEEDUPS:
            turns.append(Turn(variant, turn, H100_SECONDS[variant], partial(measure, variant)))
    about = f"{rounds} rounds of {', '.join(SPEEDUPS)} of the whole pipeline"
    return MeasuredPart("a", about, partial(built.prepare, compiled=not eager), 60.0, tuple(turns))
