"""Settings of the generation of one video."""

from dataclasses import dataclass
from typing import Literal

from galaxydit.errors import check_count, check_number, plain_fields, proposing_fields, refusal

Offload = Literal["none", "model", "sequential", "group"]
"""Which weights stay in CPU memory, see `load_pipeline`."""

FRAME_COUNTS = ("num_frames", "frames", "video_length")
"""Names that the calls of pipelines have for the number of frames."""

DtypeName = Literal["float32", "bfloat16", "float16"]
"""Names of dtypes, for use everywhere: `Literal`s that differ only in order compare equal, so with a second definition
messages could print either order.
"""


MOST = {"height": 16_384, "width": 16_384, "num_frames": 100_000, "steps": 10_000}
"""Upper bounds, so that no number in a file asks for endless work: H.264 has at most 16,384 pixels a side."""


@proposing_fields
@dataclass(frozen=True)
class GenerationSettings:
    """Everything but the prompt and the seed; None leaves the choice to the pipeline or an input (`sizes.fit_size`)."""

    height: int | None = None  # pixels
    width: int | None = None  # pixels
    num_frames: int | None = None
    steps: int | None = None  # `num_inference_steps`
    guidance_scale: float | None = None
    guidance_scale_2: float | None = None  # of the second, low-noise transformer of Wan2.2
    flow_shift: float | None = None  # larger values spend more steps at high noise
    negative_prompt: str | None = None
    fps: float = 16.0  # of the video file

    def __post_init__(self) -> None:
        plain_fields(self)
        for name, value in vars(self).items():
            if value is not None and name in MOST:
                check_count(name, value, 1, MOST[name])
            elif value is not None and name in ("guidance_scale", "guidance_scale_2", "flow_shift"):
                check_number(name, value, minimum=0.0, above=name == "flow_shift")
        check_fps(self.fps)
        if not isinstance(self.negative_prompt, str | None):
            raise refusal("negative_prompt", self.negative_prompt, "one text, or None", "pass the text of a video")


def check_fps(fps: float) -> float:
    """`fps` as Python's number. Raises GalaxyDiTError unless a video file can have it: 0.001 to 1000 a second."""
    return check_number("fps", fps, 0.001, 1000)  # files hold it as a fraction with a denominator of up to 1001
