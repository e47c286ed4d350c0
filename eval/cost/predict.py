"""Seconds and joules of a generation from operations, bytes and a GPU's constants.

Seconds: a roofline for each kind of layer. Joules: the watts of an active GPU, plus joules for each operation and byte,
at most the GPU's power limit. `fit.py` determines the constants from published measurements.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from galaxydit.eval.cost.architecture import BYTES, Architecture
from galaxydit.eval.cost.hardware import Gpu
from galaxydit.eval.cost.operations import Operations, count_operations

FILE = Path(__file__).with_name("constants.json")


@dataclass(frozen=True)
class GpuConstants:
    """Achieved throughput and power of one kind of GPU.

    Attributes:
        matrix_fraction: share of `Gpu.matrix_flops` that matrix products reach.
        elementwise_passes: time of the elementwise kernels / time to move `Operations.activation_bytes`, the inputs and
            outputs of all linear and attention layers, once at full bandwidth.
        ulysses_fraction: share of `Gpu.link` that Ulysses' all-to-all reaches, its copies included.
        base_watts: power of an active GPU whose matrix units and memory are idle.
        joules_per_matrix_flop, joules_per_attention_flop: joules of one operation, on top of the base watts.
    """

    matrix_fraction: float
    elementwise_passes: float
    ulysses_fraction: float
    base_watts: float
    joules_per_matrix_flop: float
    joules_per_attention_flop: float


@dataclass(frozen=True)
class SharedConstants:
    """Constants that are equal for all kinds of GPU.

    Attributes:
        attention_fraction: share of `Gpu.attention_flops` that the products inside attention reach.
        exposed_exponentials: share of the time of attention's exponentials that its matrix products do not hide.
        ring_fraction: share of `Gpu.link` that ring attention reaches; transfers hidden behind attention raise it.
        exchange_seconds: latency in seconds of the exchange around one self-attention layer in one transformer call.
        decoder_passes: time of decoding / time to move the features of the decoder's last stage once at full bandwidth.
        joules_per_byte: joules of one byte that elementwise kernels move, on top of the base watts.
    """

    attention_fraction: float
    exposed_exponentials: float
    ring_fraction: float
    exchange_seconds: float
    decoder_passes: float
    joules_per_byte: float


@dataclass(frozen=True)
class Constants:
    """All constants: those that all GPUs share, and those of each GPU by its name."""

    shared: SharedConstants
    gpus: Mapping[str, GpuConstants]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Errors:
    """Factors, at least 1, by which predicted seconds and joules may miss measurements of models not in the fit.

    90 % of these measurements lie between prediction / factor and prediction x factor.
    """

    seconds_factor: float
    joules_factor: float


@cache
def fitted() -> tuple[Constants, Errors]:
    """The constants that the package ships, and the factors by which predicted seconds and joules may be wrong."""
    data = json.loads(FILE.read_text(encoding="utf-8"))
    gpus = {name: GpuConstants(**values) for name, values in data["constants"]["gpus"].items()}
    return Constants(SharedConstants(**data["constants"]["shared"]), gpus), Errors(**data["errors"])


@dataclass(frozen=True)
class Split:
    """How GPUs share one video by context parallelism: the degrees of Ulysses and of ring attention."""

    ulysses: int = 1
    ring: int = 1

    @property
    def gpus(self) -> int:
        """Number of GPUs, the product of the degrees."""
        return self.ulysses * self.ring

    @property
    def name(self) -> str:
        """Name of the split, such as "Ulysses 4, ring 2"; "" for a single GPU."""
        degrees = [
            f"{name} {degree}" for name, degree in (("Ulysses", self.ulysses), ("ring", self.ring)) if degree > 1
        ]
        return ", ".join(degrees)


@dataclass(frozen=True)
class Workload:
    """A video of a model with the architecture `shape`; `batch` such videos are denoised together.

    `height` and `width` are in pixels, `frames` those of the decoded video.
    """

    shape: Architecture
    height: int
    width: int
    frames: int
    steps: int
    batch: int = 1

    @property
    def operations(self) -> Operations:
        """Operations of one transformer call for one sample and guidance branch."""
        return count_operations(self.shape, self.height, self.width, self.frames)


@dataclass(frozen=True)
class Prediction:
    """Seconds of each part of one video, and its joules over all GPUs.

    Denoising consists of matrix products, attention, elementwise kernels and the exchange between GPUs.
    `denoising_joules` are those of denoising, `joules` those of the whole video.
    """

    matrix_products: float
    attention: float
    elementwise: float
    exchange: float
    text_encoder: float
    decoder: float
    denoising_joules: float
    joules: float

    @property
    def denoising(self) -> float:
        """Seconds of all transformer calls."""
        return self.matrix_products + self.attention + self.elementwise + self.exchange

    @property
    def seconds(self) -> float:
        """Seconds from the prompt to the decoded video."""
        return self.text_encoder + self.denoising + self.decoder


def predict(
    work: Workload, gpu: Gpu, constants: Constants, split: Split = Split(), compute_fraction: float = 1.0
) -> Prediction:
    """Seconds and joules of one video.

    `split`: how GPUs share the video, by default a single GPU. `compute_fraction`: calls of transformer blocks / those
    of a generation without the plugin.
    """
    shape, count = work.shape, work.operations
    own, shared = constants.gpus[gpu.name], constants.shared
    calls = work.steps * shape.branches * compute_fraction
    share = calls / split.gpus
    matrix = share * count.matrix_flops / (own.matrix_fraction * gpu.matrix_flops)
    products = count.attention_flops / (shared.attention_fraction * gpu.attention_flops)
    attention = share * (products + shared.exposed_exponentials * count.scores / gpu.exponentials)
    moved = own.elementwise_passes * count.activation_bytes
    elementwise = share * moved / gpu.bandwidth
    exchange = _exchange_seconds(work, gpu, own, shared, split, share) if split.gpus > 1 else 0.0
    values = BYTES * shape.vae.decoder_values_per_pixel * work.height * work.width * work.frames
    decoder = shared.decoder_passes * values / gpu.bandwidth
    text = shape.text_encoder
    text_encoder = 2 * text.parameters * text.tokens * shape.branches / (own.matrix_fraction * gpu.matrix_flops)
    denoising = matrix + attention + elementwise + exchange
    above = own.joules_per_matrix_flop * count.matrix_flops + own.joules_per_attention_flop * count.attention_flops
    above += shared.joules_per_byte * moved
    # Every GPU of a context-parallel run encodes the text and decodes the video.
    limit = gpu.watts * split.gpus
    denoising_joules = min(own.base_watts * split.gpus * denoising + calls * above, limit * denoising)
    others = min(own.base_watts, gpu.watts) * split.gpus * (text_encoder + decoder)
    joules = denoising_joules + others
    return Prediction(matrix, attention, elementwise, exchange, text_encoder, decoder, denoising_joules, joules)


def _exchange_seconds(
    work: Workload, gpu: Gpu, own: GpuConstants, shared: SharedConstants, split: Split, share: float
) -> float:
    """Seconds, in the denoising of one video, in which the GPUs exchange queries, keys, values and outputs (Ulysses),
    and keys and values (ring).

    `own`: constants of this GPU. `share`: steps x guidance branches x compute fraction / number of GPUs.
    """
    local = share * work.operations.exchanged_bytes
    ulysses = 4 * local * (split.ulysses - 1) / split.ulysses / (own.ulysses_fraction * gpu.link)
    ring = 2 * local * (split.ring - 1) / (shared.ring_fraction * gpu.link)
    calls = share * split.gpus / (work.shape.branches if work.shape.concatenates else 1)
    return ulysses + ring + calls * work.operations.attentions * shared.exchange_seconds / work.batch


def splits(shape: Architecture, gpus: int) -> list[Split]:
    """All ways to share the tokens among `gpus` GPUs, as Ulysses degree x ring degree.

    The Ulysses degree divides the number of attention heads.
    """
    degrees = [degree for degree in range(1, gpus + 1) if gpus % degree == 0 and shape.heads % degree == 0]
    return [Split(degree, gpus // degree) for degree in degrees]
