"""What a latency run measures: models, sizes and methods by name, checked without torch."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from galaxydit.errors import check_choice, check_count, check_number, refusal
from galaxydit.eval.compare.registry import is_installed
from galaxydit.eval.latency.forced_steps import evenly_forced

COUNTED_STEPS = 4  # three that warm up every path (full, full, reused), and a full one again
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
NEEDS = {"cache-dit": "cache_dit"}  # modules that are no dependencies of this package
PROXIES = (
    "time_embedding",
    "noisy_latent",
    "filtered_latent",
    "block_input",
    "modulated_input",
    "self_attention",
    "cross_attention",
    "feed_forward",
    "block_residual",
    "block_output",
)


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

    def __post_init__(self) -> None:
        if self.width % 16 or self.height % 16 or self.frames % 4 != 1 or min(self.width, self.height, self.frames) < 1:
            expected = "sides divisible by 16 and 4 n + 1 frames"
            raise refusal("size", f"{self.width}x{self.height}x{self.frames}", expected, "pass for example 832x480x81")

    @property
    def latent_shape(self) -> tuple[int, int, int, int, int]:
        """`(batch, channels, frames, height, width)`."""
        return 1, 16, (self.frames - 1) // 4 + 1, self.height // 8, self.width // 8

    @property
    def tokens(self) -> int:
        """Number of tokens in the transformer."""
        _, _, frames, height, width = self.latent_shape
        return frames * (height // 2) * (width // 2)


SIZES = {"480p": VideoSize(832, 480, 81), "720p": VideoSize(1280, 720, 81), "tiny": VideoSize(128, 128, 9)}


def parse_size(text: str) -> VideoSize:
    """Parse a size by name or as WIDTHxHEIGHTxFRAMES; raises GalaxyDiTError for anything else."""
    if text in SIZES:
        return SIZES[text]
    if not (numbers := re.fullmatch(r"(\d+)x(\d+)x(\d+)", text)):
        raise refusal("size", text, f"{', '.join(SIZES)} or WIDTHxHEIGHTxFRAMES", "pass for example 832x480x81")
    return VideoSize(*map(int, numbers.groups()))


@dataclass(frozen=True)
class LatencySettings:
    """What to measure.

    Attributes:
        model: one of PRESETS.
        size: one of SIZES, or WIDTHxHEIGHTxFRAMES.
        steps: steps of the trajectory.
        sampled_steps: steps that are run to time single steps, at least 4.
        fraction: share of full steps, warm-up and last step included.
        repeats: runs of each method, in turn.
        whole: also run whole trajectories.
        minutes: time after which nothing new is begun; None for no limit.
        methods: names from METHODS; None for all that are installed.
        modes: False for eager, True for compiled; each gives a row.
        backend: backend of torch.compile.
    """

    model: str = "tiny"
    size: str = "tiny"
    steps: int = 50
    sampled_steps: int = 12
    fraction: float = 0.5
    repeats: int = 3
    whole: bool = True
    minutes: float | None = None
    methods: Sequence[str] | None = None
    modes: Sequence[bool] = (False,)
    backend: str = "inductor"
    proxy: str = "block_residual"
    device: str = "cpu"
    dtype: str = "float32"
    text_encoder: bool = False
    vae: bool = False
    host: bool = True

    def __post_init__(self) -> None:
        check_choice("model", self.model, tuple(PRESETS))
        check_choice("proxy", self.proxy, PROXIES)
        check_choice("dtype", self.dtype, ("float32", "bfloat16", "float16"))
        check_count("repeats", self.repeats, 1)
        for name in self.methods or ():
            check_choice("method", name, METHODS)
            if not is_installed(NEEDS.get(name)):
                raise refusal("method", name, "one that is installed", "pip install 'galaxydit[bench]'")
        parse_size(self.size)
        check_number("fraction", self.fraction, 0.0, 1.0)
        if self.minutes is not None:
            check_number("minutes", self.minutes, 0.0)
        if not re.fullmatch(r"cpu|(cuda|mps|xpu)(:\d+)?", self.device):
            raise refusal("device", self.device, "cpu, cuda, cuda:1, mps or xpu", "choose one of these")
        evenly_forced(self.steps, self.fraction)  # refuses a fraction that warm-up and last step exceed
        if not COUNTED_STEPS <= self.sampled_steps <= self.steps:
            expected = f"a whole number from {COUNTED_STEPS} to the {self.steps} steps"
            raise refusal("sampled_steps", self.sampled_steps, expected, "pass for example 12 of 50")
