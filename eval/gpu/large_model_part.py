"""Part d: steps of the 14B at 720p, plain and with the plugin, and what the plugin adds to a call."""

import math
from functools import cached_property, partial
from typing import Any

import torch
from diffusers import WanTransformer3DModel

from galaxydit.eval.gpu.measured_video import Scale
from galaxydit.eval.gpu.turns import MeasuredPart, Turn
from galaxydit.eval.latency.model_shapes import PRESETS, ForcedSteps, VideoSize, parse_size
from galaxydit.eval.latency.random_models import build_inputs, build_transformer
from galaxydit.eval.latency.timed_trajectory import TimedTrajectory, clock_name
from galaxydit.stopwatch import synchronize

MODEL = "14B"
SIZE = "720p"
SMALL = "32x32x5"  # a call of few tokens takes as long as the host needs, so what the plugin adds shows
PLUGIN = "galaxydit output, no proxy"
STEPS = 3
SMALL_STEPS = 12
ALL_FULL = ForcedSteps(SMALL_STEPS, tuple(range(SMALL_STEPS)))
THIRD_REUSED = ForcedSteps(SMALL_STEPS, (0, 1))  # of more steps than are run, because the plugin reuses none of so few


class LargeModel:
    """The transformer of random weights, built when it is first used, and its trajectories."""

    def __init__(self, scale: Scale) -> None:
        self.scale = scale
        self.preset = PRESETS[scale.model(MODEL)]

    @cached_property
    def transformer(self) -> WanTransformer3DModel:
        return build_transformer(self.preset, self.scale.device, torch.bfloat16)

    def prepare(self) -> dict[str, Any]:
        """Build, and run a small video as a warm-up: a step at full size would take too long."""
        device = self.scale.device
        start = torch.cuda.memory_allocated(device) if device.type == "cuda" else 0
        row = self.measure("plain", ALL_FULL, SMALL, STEPS)
        synchronize(device)
        if device.type == "cuda":
            row["built_bytes"] = torch.cuda.memory_allocated(device) - start
        return row

    def measure(self, method: str, forced: ForcedSteps, size: str, steps: int) -> dict[str, Any]:
        """Milliseconds of each of the first `steps` steps, both branches together."""
        device = self.scale.device
        video: VideoSize = parse_size(size)
        inputs = build_inputs(self.preset, video, device, torch.bfloat16)
        trajectory = TimedTrajectory(method, forced, self.transformer, inputs)
        timing = trajectory.run(steps)
        joules = timing.joules
        return {
            "model": self.scale.model(MODEL),
            "compiled": False,
            "tokens": video.tokens,
            "steps": steps,
            "full_steps": sum(step < steps for step in forced.full),
            "milliseconds": timing.milliseconds,
            "clock": clock_name(device),
            "joules": {"denoising": None if joules is None or math.isnan(joules) else joules},
            "peak_bytes": timing.peak_bytes,
            "bytes_held": timing.bytes_held,
        }


def large_model_part(scale: Scale) -> MeasuredPart:
    """Part d. Of three steps with the plugin, two are full and the third is reused."""
    model = LargeModel(scale)
    size = scale.size(SIZE)
    turns = (
        Turn("plain", 1, 76.0, partial(model.measure, "plain", ALL_FULL, size, STEPS)),
        Turn("last step reused", 1, 51.0, partial(model.measure, PLUGIN, THIRD_REUSED, size, STEPS)),
        Turn("small, plain", 1, 2.0, partial(model.measure, "plain", ALL_FULL, SMALL, SMALL_STEPS)),
        Turn("small, full steps", 1, 2.0, partial(model.measure, PLUGIN, ALL_FULL, SMALL, SMALL_STEPS)),
    )
    about = "three steps of the 14B at 720p, plain and reused, and small calls"
    return MeasuredPart("d", about, model.prepare, 10.0, turns)
