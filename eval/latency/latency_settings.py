"""Settings of a latency run: models, sizes and methods by name, checked without torch."""

import math
import re
from dataclasses import dataclass
from typing import Annotated, Literal

import typer

from galaxydit.errors import check_choice, check_count, check_number, listed, plain_fields, refusal
from galaxydit.eval.methods.method_registry import is_installed
from galaxydit.policies.policy import FEW_STEPS

Mode = Literal["eager", "compiled", "both"]
METHODS = (
    "plain",
    "galaxydit output",
    "galaxydit residual",
    "galaxydit output, no proxy",
    "galaxydit residual, no proxy",
    "FirstBlockCache",
    "SeaCache",
    "cache-dit",
)
INSTALLED = METHODS if is_installed("cache_dit") else METHODS[:-1]


@dataclass(frozen=True)
class Preset:
    """Shape of a Wan transformer and of its text input."""

    blocks: int
    heads: int
    head_dim: int
    ffn_dim: int
    text_dim: int = 4096
    text_tokens: int = 512


PRESETS = {
    "1.3B": Preset(blocks=30, heads=12, head_dim=128, ffn_dim=8960),
    "14B": Preset(blocks=40, heads=40, head_dim=128, ffn_dim=13824),
    "tiny": Preset(blocks=8, heads=4, head_dim=32, ffn_dim=512, text_dim=64, text_tokens=32),
}


@dataclass(frozen=True)
class VideoSize:
    """Pixels and frames of a video. Wan compresses 8x in space and 4x in time to 16 channels, in 2x2 patches."""

    width: int
    height: int
    frames: int

    @property
    def latent_shape(self) -> tuple[int, int, int, int, int]:
        """`(batch, channels, frames, height, width)`."""
        return 1, 16, (self.frames - 1) // 4 + 1, self.height // 8, self.width // 8

    @property
    def tokens(self) -> int:
        _, _, frames, height, width = self.latent_shape
        return frames * (height // 2) * (width // 2)


SIZES = {"480p": "832x480x81", "720p": "1280x720x81", "tiny": "128x128x9"}


def parse_size(text: str) -> VideoSize:
    """The size of a name ("480p", "720p", "tiny") or WIDTHxHEIGHTxFRAMES in pixels.

    Raises GalaxyDiTError for sides that 16 does not divide, and for other than 4 n + 1 frames.
    """
    if numbers := re.fullmatch(r"(\d+)x(\d+)x(\d+)", SIZES.get(text, text)):
        size = VideoSize(*map(int, numbers.groups()))
        if size.width % 16 == size.height % 16 == 0 and size.frames % 4 == 1 and size.width and size.height:
            return size
    expected = f"{', '.join(SIZES)}, or WIDTHxHEIGHTxFRAMES with sides divisible by 16 and 4 n + 1 frames"
    raise refusal("size", text, expected, "pass for example 832x480x81")


@dataclass(frozen=True)
class ForcedSteps:
    """The full steps of a run, as ascending indices; the others have to be reused."""

    steps: int
    full: tuple[int, ...]


def evenly_forced(steps: int, fraction: float) -> ForcedSteps:
    """A `fraction` of full steps: the first, and others evenly spaced from the second to the last.

    Extrapolation needs two outputs; the third is reused, unless all are full. Raises GalaxyDiTError for under 3 full
    steps.
    """
    check_number("fraction", fraction, 0.0, 1.0)
    count = round(steps * fraction)
    if count < 3:
        expected = f"a number from {3 / steps:g} to 1 at {steps} steps, because the first two and the last are full"
        raise refusal("fraction", fraction, expected, "take a larger fraction or more steps")
    # From step 1 to the last; rounded up, so that step 2 is reused.
    spaced = [1 + math.ceil(index * (steps - 2) / (count - 2)) for index in range(count - 1)]
    return ForcedSteps(steps, (0, *spaced))


@dataclass(frozen=True)
class LatencySettings:
    """Options of `galaxydit latency`. Raises GalaxyDiTError for a value that is not allowed."""

    model: Annotated[str, typer.Option(help="1.3B, 14B or tiny: a Wan2.1 transformer of that shape.")] = "tiny"
    size: Annotated[str, typer.Option(help="480p, 720p, tiny or WIDTHxHEIGHTxFRAMES.")] = "tiny"
    steps: Annotated[int, typer.Option(help=f"Denoising steps, at least {FEW_STEPS + 1}.")] = 50
    fraction: Annotated[float, typer.Option(help="Share of full steps that is forced.")] = 0.5
    repeats: Annotated[int, typer.Option(help="Turns of each method.")] = 3
    methods: Annotated[list[str] | None, typer.Option("--method", help="Only this method; may be repeated.")] = None
    mode: Annotated[
        Mode | None, typer.Option(help="How the blocks run; by default both ways on a GPU, eagerly on a CPU.")
    ] = None
    attention: Annotated[str | None, typer.Option(help="An attention backend of diffusers, such as sage.")] = None
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda or cuda:N; by default the GPU if the machine has one.")
    ] = None

    def __post_init__(self) -> None:
        plain_fields(self)
        if self.methods is not None:
            object.__setattr__(self, "methods", [*listed("methods", self.methods)])
        check_choice("model", self.model, tuple(PRESETS))
        check_count("steps", self.steps, FEW_STEPS + 1)
        check_count("repeats", self.repeats, 1)
        for name in self.methods or ():
            check_choice("method", name, METHODS)
            if name not in INSTALLED:
                raise refusal("method", name, "an installed method", "pip install 'galaxydit[bench]'")
        parse_size(self.size)
        evenly_forced(self.steps, self.fraction)
        if self.device is not None and not re.fullmatch(r"cpu|cuda(:\d+)?", self.device):
            raise refusal("device", self.device, "cpu, cuda or cuda:N", "pass for example cuda:1")
