"""How one video is generated."""

import math
from dataclasses import dataclass
from typing import Literal

from galaxydit.errors import check_count, check_number, refusal

Offload = Literal["none", "model", "sequential", "group"]
"""Which weights stay in CPU memory, see `load_pipeline`."""


@dataclass(frozen=True)
class GenerationSettings:
    """Everything but the prompt and the seed; None leaves the choice to the pipeline.

    `guidance_scale_2` belongs to the second, low-noise transformer of Wan2.2. `flow_shift` bends the sigma schedule
    towards noise.
    """

    height: int | None = None  # pixels
    width: int | None = None  # pixels
    num_frames: int | None = None
    steps: int | None = None
    guidance_scale: float | None = None
    guidance_scale_2: float | None = None
    flow_shift: float | None = None
    negative_prompt: str | None = None
    fps: float = 16.0

    def __post_init__(self) -> None:
        for name in ("height", "width", "num_frames", "steps"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name), minimum=1)
        for name in ("guidance_scale", "guidance_scale_2"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), minimum=0.0)
        if self.flow_shift is not None:
            _check_positive("flow_shift", self.flow_shift, math.inf)
        check_fps(self.fps)


def check_fps(fps: float) -> None:
    """Raise GalaxyDiTError unless a video file can have this rate."""
    _check_positive("fps", fps, 1000)


def _check_positive(field: str, value: float, maximum: float) -> None:
    check_number(field, value, 0.0, maximum)
    if value == 0:
        raise refusal(field, value, "a number above 0", "pass for example 1")
