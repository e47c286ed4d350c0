"""Shapes of Wan2.1 models and videos, and the full steps that a run forces."""

import math
import re
from dataclasses import dataclass

from galaxydit.errors import check_number, refusal


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
