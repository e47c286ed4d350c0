"""How one video is generated, and what the makers of a model recommend."""

import inspect
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from galaxydit.errors import check_count, check_number, refusal

if TYPE_CHECKING:
    from diffusers import DiffusionPipeline


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


WAN_TINY = GenerationSettings(64, 64, 9, steps=50, guidance_scale=5.0, fps=8.0)
WAN_21_1_3B = GenerationSettings(480, 832, 81, steps=50, guidance_scale=6.0, flow_shift=8.0)
WAN_21_14B = GenerationSettings(720, 1280, 81, steps=50, guidance_scale=5.0, flow_shift=5.0)
WAN_22_A14B = GenerationSettings(
    720, 1280, 81, steps=40, guidance_scale=4.0, guidance_scale_2=3.0, flow_shift=12.0, fps=16.0
)
WAN_22_TI2V_5B = GenerationSettings(704, 1280, 121, steps=50, guidance_scale=5.0, flow_shift=5.0, fps=24.0)


def recommended_settings(pipe: "DiffusionPipeline") -> GenerationSettings:
    """What the makers recommend for this pipeline (github.com/Wan-Video, text to video).

    Wan models are told apart by their layers and options, so that local copies and fine-tunes are recognised too. Any
    other pipeline gets the defaults of its own call.
    """
    if type(pipe).__name__ == "WanPipeline":
        if pipe.config.expand_timesteps:
            return WAN_22_TI2V_5B
        if pipe.config.boundary_ratio is not None:
            return WAN_22_A14B
        by_layers = {10: WAN_TINY, 30: WAN_21_1_3B, 40: WAN_21_14B}
        if pipe.transformer.config.num_layers in by_layers:
            return by_layers[pipe.transformer.config.num_layers]
    return GenerationSettings(
        height=_call_default(pipe, "height"),
        width=_call_default(pipe, "width"),
        num_frames=_call_default(pipe, "num_frames"),
        steps=_call_default(pipe, "num_inference_steps"),
        guidance_scale=_call_default(pipe, "guidance_scale"),
    )


def _call_default(pipe: "DiffusionPipeline", name: str) -> Any:
    parameter = inspect.signature(type(pipe).__call__).parameters.get(name)
    return None if parameter is None or parameter.default is inspect.Parameter.empty else parameter.default
