"""Seconds, by a roofline for each kind of layer, and joules of a generation from operations, bytes and constants.

Joules are the watts of an active GPU, plus joules for each operation and byte, at most the power limit.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from galaxydit.eval.cost.architecture import Architecture
from galaxydit.eval.cost.hardware import FLASH, GPUS, Gpu
from galaxydit.eval.cost.operations import Operations, count_operations
from galaxydit.validation import parse

FILE = Path(__file__).with_name("constants.json")


@dataclass(frozen=True)
class GpuConstants:
    """Achieved throughput and power of one kind of GPU."""

    matrix_fraction: float  # of `Gpu.matrix_flops`
    elementwise_passes: float  # time of eager kernels / time to move `Operations.activation_bytes` once
    ulysses_fraction: float  # of `Gpu.link`, copies included
    base_watts: float  # matrix units and memory idle
    joules_per_matrix_flop: float  # on top of the base watts
    joules_per_attention_flop: float


@dataclass(frozen=True)
class KernelConstants:
    """Achieved throughput of an attention kernel, equal for all kinds of GPU."""

    fraction: float  # of the peak: `Gpu.ampere_flops` for FlashAttention-2, else `Gpu.matrix_flops`
    exposed_exponentials: float  # share of their time that matrix products do not hide


@dataclass(frozen=True)
class SharedConstants:
    """Constants that are equal for all kinds of GPU."""

    compiled_fraction: float  # time of compiled / eager elementwise kernels
    ring_fraction: float  # of `Gpu.link`; transfers hidden behind attention raise it
    exchange_seconds: float  # latency around one self-attention layer in one call
    decoder_flops: float  # for each value of the last stage's features, in the time of decoding, at the power limit
    conversion_seconds: float  # for each million pixels on the host, at the base watts
    text_fraction: float  # of `Gpu.matrix_flops`, on the few tokens of a prompt
    joules_per_byte: float  # moved by elementwise kernels, on top of the base watts


@dataclass(frozen=True)
class Constants:
    """All constants, by attention kernel and by fitted GPU."""

    shared: SharedConstants
    kernels: Mapping[str, KernelConstants]
    gpus: Mapping[str, GpuConstants]


@dataclass(frozen=True)
class Platform:
    """GPUs that share one video by Ulysses and ring attention, their attention kernel, and if blocks are compiled."""

    gpu: Gpu
    kernel: str
    compiled: bool = False
    ulysses: int = 1
    ring: int = 1

    @property
    def gpus(self) -> int:
        return self.ulysses * self.ring

    @property
    def name(self) -> str:
        return f"{self.kernel} on {self.gpu.name}"

    @property
    def split(self) -> str:
        """Such as "Ulysses 4, ring 2"; "" for a single GPU."""
        degrees = {"Ulysses": self.ulysses, "ring": self.ring}
        return ", ".join(f"{name} {degree}" for name, degree in degrees.items() if degree > 1)


@dataclass(frozen=True)
class Errors:
    """Factors by which predictions may be off."""

    seconds_factor: float  # holds 90 % of the measurements of models that the fit did not see
    joules_factor: float
    extrapolated: Mapping[str, float]  # largest known factor, by unfitted platform


@cache
def fitted() -> tuple[Constants, Errors]:
    """The shipped constants, and how far predictions may be off."""
    data = json.loads(FILE.read_text(encoding="utf-8"))
    return parse(Constants, data["constants"], FILE.name), parse(Errors, data["errors"], FILE.name)


@dataclass(frozen=True)
class Workload:
    """`batch` videos that are denoised together; size in pixels and decoded frames."""

    shape: Architecture
    height: int
    width: int
    frames: int
    steps: int
    batch: int = 1

    @cached_property
    def operations(self) -> Operations:
        return count_operations(self.shape, self.height, self.width, self.frames)


@dataclass(frozen=True)
class Prediction:
    """Seconds of each part of one video, and joules over all GPUs; `conversion` is of frames on the host."""

    matrix_products: float
    attention: float
    elementwise: float
    exchange: float
    text_encoder: float
    decoder: float
    conversion: float
    denoising_joules: float
    joules: float

    @property
    def denoising(self) -> float:
        """Seconds of all transformer calls."""
        return self.matrix_products + self.attention + self.elementwise + self.exchange

    @property
    def seconds(self) -> float:
        """From the prompt to the decoded video."""
        return self.text_encoder + self.denoising + self.decoder + self.conversion


def layer_seconds(count: Operations, platform: Platform, constants: Constants) -> tuple[float, float, float]:
    """Seconds of matrix products, of attention and of elementwise kernels on one GPU."""
    gpu = platform.gpu
    kernel = constants.kernels[platform.kernel]
    own = constants.gpus[gpu.like]
    if platform.kernel == FLASH:
        peak = gpu.ampere_flops
    else:
        peak = gpu.matrix_flops
    attention = count.attention_flops / (kernel.fraction * peak)
    attention += kernel.exposed_exponentials * count.scores / gpu.exponentials
    passes = own.elementwise_passes
    if platform.compiled:
        passes *= constants.shared.compiled_fraction
    matrix = count.matrix_flops / (own.matrix_fraction * gpu.matrix_flops)
    return matrix, attention, passes * count.activation_bytes / gpu.bandwidth


def predict(work: Workload, platform: Platform, constants: Constants, compute_fraction: float = 1.0) -> Prediction:
    """Seconds and joules of one video.

    An unfitted GPU has the constants of the GPU it is like, watts scaled by power limit, joules by power limit / peak
    rate.
    """
    gpu = platform.gpu
    gpus = platform.gpus
    shape = work.shape
    count = work.operations
    own = constants.gpus[gpu.like]
    shared = constants.shared
    like = GPUS[gpu.like]
    calls = (work.steps - shape.uncalled_steps) * shape.branches * compute_fraction
    of_call = layer_seconds(count, platform, constants)
    matrix, attention, elementwise = (calls / gpus * part for part in of_call)
    exchange = 0.0
    if gpus > 1:
        exchange = _exchange_seconds(work, platform, constants, calls)
    pixels = work.height * work.width * work.frames
    text = shape.text_encoder
    rate = own.matrix_fraction * gpu.matrix_flops
    decoder = shared.decoder_flops * shape.vae.decoder_values_per_pixel * pixels / rate
    conversion = shared.conversion_seconds * pixels / 1e6
    text_flops = 2 * text.parameters * text.tokens * shape.branches
    text_encoder = text_flops / (shared.text_fraction * gpu.matrix_flops)
    denoising = matrix + attention + elementwise + exchange
    # Joules above those of idle units: for each operation, and for each byte that elementwise kernels move
    joules_scale = gpu.watts / gpu.matrix_flops / (like.watts / like.matrix_flops)
    above = own.joules_per_matrix_flop * count.matrix_flops + own.joules_per_attention_flop * count.attention_flops
    above = joules_scale * above + shared.joules_per_byte * of_call[2] * gpu.bandwidth
    base = own.base_watts * gpu.watts / like.watts * gpus
    limit = gpu.watts * gpus
    denoising_joules = min(base * denoising + calls * above, limit * denoising)
    # Every GPU of a context-parallel run encodes the text and decodes the video.
    text_joules = base * text_encoder + joules_scale * own.joules_per_matrix_flop * text_flops * gpus
    joules = text_joules + denoising_joules + limit * decoder + base * conversion
    return Prediction(
        matrix, attention, elementwise, exchange, text_encoder, decoder, conversion, denoising_joules, joules
    )


def _exchange_seconds(work: Workload, platform: Platform, constants: Constants, calls: float) -> float:
    """Seconds in which GPUs exchange queries, keys, values and outputs (Ulysses), and keys and values (ring)."""
    link = platform.gpu.link
    shared = constants.shared
    local = calls / platform.gpus * work.operations.exchanged_bytes
    rate = constants.gpus[platform.gpu.like].ulysses_fraction * link
    ulysses = 4 * local * (platform.ulysses - 1) / platform.ulysses / rate
    ring = 2 * local * (platform.ring - 1) / (shared.ring_fraction * link)
    calls *= work.shape.calls / work.shape.branches
    return ulysses + ring + calls * work.operations.attentions * shared.exchange_seconds / work.batch


def splits(shape: Architecture, gpus: int) -> list[tuple[int, int]]:
    """The degrees of Ulysses and ring attention that share the tokens; Ulysses' divides the number of heads."""
    degrees = []
    for ulysses in range(1, gpus + 1):
        if gpus % ulysses == 0 and shape.heads % ulysses == 0:
            degrees.append((ulysses, gpus // ulysses))
    return degrees
