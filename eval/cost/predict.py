"""Seconds and joules of a generation from operations, bytes and a GPU's constants.

Seconds: a roofline for each kind of layer. Joules: the watts of an active GPU, plus joules for each operation and byte,
at most the GPU's power limit. `fit.py` determines the constants from measurements.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from galaxydit.eval.cost.architecture import Architecture
from galaxydit.eval.cost.hardware import FLASH, GPUS, Gpu
from galaxydit.eval.cost.operations import Operations, count_operations

FILE = Path(__file__).with_name("constants.json")


@dataclass(frozen=True)
class GpuConstants:
    """Achieved throughput and power of one kind of GPU.

    Attributes:
        matrix_fraction: share of `Gpu.matrix_flops` that matrix products reach.
        elementwise_passes: time of eager elementwise kernels / time to move `Operations.activation_bytes`, the inputs
            and outputs of all linear and attention layers, once at full bandwidth.
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
class KernelConstants:
    """Achieved throughput of an attention kernel, equal for all kinds of GPU.

    Attributes:
        fraction: share of the peak rate of the matrix instructions it uses that its matrix products reach:
            `Gpu.ampere_flops` for FlashAttention-2, `Gpu.matrix_flops` for the other kernels.
        exposed_exponentials: share of the time of its exponentials that the matrix products do not hide.
    """

    fraction: float
    exposed_exponentials: float


@dataclass(frozen=True)
class SharedConstants:
    """Constants that are equal for all kinds of GPU.

    Attributes:
        compiled_fraction: time of the elementwise kernels of compiled blocks / that of eager ones.
        ring_fraction: share of `Gpu.link` that ring attention reaches; transfers hidden behind attention raise it.
        exchange_seconds: latency in seconds of the exchange around one self-attention layer in one transformer call.
        decoder_flops: operations that matrix products do in the time of decoding, for each value of the features in the
            decoder's last stage; a decoder runs at the power limit.
        conversion_seconds: for each million pixels of the decoded frames that the host converts, at the base watts.
        text_fraction: share of `Gpu.matrix_flops` that the text encoder reaches on the few tokens of a prompt.
        joules_per_byte: joules of one byte that elementwise kernels move, on top of the base watts.
    """

    compiled_fraction: float
    ring_fraction: float
    exchange_seconds: float
    decoder_flops: float
    conversion_seconds: float
    text_fraction: float
    joules_per_byte: float


@dataclass(frozen=True)
class Constants:
    """All constants: shared ones, those of each attention kernel and those of each fitted GPU by its name."""

    shared: SharedConstants
    kernels: Mapping[str, KernelConstants]
    gpus: Mapping[str, GpuConstants]

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> "Constants":
        """The constants from plain data (`dataclasses.asdict`)."""
        kernels = {name: KernelConstants(**values) for name, values in data["kernels"].items()}
        gpus = {name: GpuConstants(**values) for name, values in data["gpus"].items()}
        return cls(SharedConstants(**data["shared"]), kernels, gpus)


@dataclass(frozen=True)
class Platform:
    """A GPU, the attention kernel, and whether the transformer's blocks are compiled."""

    gpu: Gpu
    kernel: str
    compiled: bool = False

    @property
    def name(self) -> str:
        """The GPU and the kernel."""
        return f"{self.kernel} on {self.gpu.name}"


@dataclass(frozen=True)
class Errors:
    """Factors by which predictions may be off.

    Attributes:
        seconds_factor, joules_factor: 90 % of the measurements of models not in the fit lie between prediction / factor
            and prediction x factor.
        extrapolated: by name of a platform that no constants are fitted to, the largest known factor.
    """

    seconds_factor: float
    joules_factor: float
    extrapolated: Mapping[str, float]


@cache
def fitted() -> tuple[Constants, Errors]:
    """The constants that the package ships, and how far predictions with them may be off."""
    data = json.loads(FILE.read_text(encoding="utf-8"))
    return Constants.of(data["constants"]), Errors(**data["errors"])


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
        degrees = {"Ulysses": self.ulysses, "ring": self.ring}
        return ", ".join(f"{name} {degree}" for name, degree in degrees.items() if degree > 1)


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

    Denoising consists of matrix products, attention, elementwise kernels and the exchange between GPUs. The host
    converts the decoded frames (`conversion`). `joules` are those of the whole video, `denoising_joules` a part.
    """

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
        """Seconds from the prompt to the decoded video."""
        return self.text_encoder + self.denoising + self.decoder + self.conversion


def layer_seconds(count: Operations, platform: Platform, constants: Constants) -> tuple[float, float, float]:
    """Seconds of matrix products, of attention and of elementwise kernels for these operations on one GPU."""
    gpu, kernel = platform.gpu, constants.kernels[platform.kernel]
    own = constants.gpus[gpu.like]
    peak = gpu.ampere_flops if platform.kernel == FLASH else gpu.matrix_flops
    attention = count.attention_flops / (kernel.fraction * peak)
    attention += kernel.exposed_exponentials * count.scores / gpu.exponentials
    passes = own.elementwise_passes * (constants.shared.compiled_fraction if platform.compiled else 1.0)
    matrix = count.matrix_flops / (own.matrix_fraction * gpu.matrix_flops)
    return matrix, attention, passes * count.activation_bytes / gpu.bandwidth


def predict(
    work: Workload, platform: Platform, constants: Constants, split: Split = Split(), compute_fraction: float = 1.0
) -> Prediction:
    """Seconds and joules of one video, shared by the GPUs of `split`.

    `compute_fraction`: calls of transformer blocks / those of a generation without the plugin. A GPU without fitted
    constants has those of the GPU it is like, the watts scaled by power limit, joules by power limit / peak rate.
    """
    gpu = platform.gpu
    shape, count = work.shape, work.operations
    own, shared, like = constants.gpus[gpu.like], constants.shared, GPUS[gpu.like]
    calls = work.steps * shape.branches * compute_fraction
    share = calls / split.gpus
    of_call = layer_seconds(count, platform, constants)
    matrix, attention, elementwise = (share * part for part in of_call)
    exchange = _exchange_seconds(work, gpu, own, shared, split, share) if split.gpus > 1 else 0.0
    rate, text = own.matrix_fraction * gpu.matrix_flops, shape.text_encoder
    values = shape.vae.decoder_values_per_pixel * work.height * work.width * work.frames
    decoder = shared.decoder_flops * values / rate
    conversion = shared.conversion_seconds * work.height * work.width * work.frames / 1e6
    text_flops = 2 * text.parameters * text.tokens * shape.branches
    text_encoder = text_flops / (shared.text_fraction * gpu.matrix_flops)
    denoising = matrix + attention + elementwise + exchange
    joules_scale = gpu.watts / gpu.matrix_flops / (like.watts / like.matrix_flops)
    above = own.joules_per_matrix_flop * count.matrix_flops + own.joules_per_attention_flop * count.attention_flops
    above = joules_scale * above + shared.joules_per_byte * of_call[2] * gpu.bandwidth
    base, limit = own.base_watts * gpu.watts / like.watts * split.gpus, gpu.watts * split.gpus
    denoising_joules = min(base * denoising + calls * above, limit * denoising)
    # Every GPU of a context-parallel run encodes the text and decodes the video.
    text_joules = base * text_encoder + joules_scale * own.joules_per_matrix_flop * text_flops * split.gpus
    joules = text_joules + denoising_joules + limit * decoder + base * conversion
    return Prediction(
        matrix, attention, elementwise, exchange, text_encoder, decoder, conversion, denoising_joules, joules
    )


def _exchange_seconds(
    work: Workload, gpu: Gpu, own: GpuConstants, shared: SharedConstants, split: Split, share: float
) -> float:
    """Seconds, in the denoising of one video, in which the GPUs exchange queries, keys, values and outputs (Ulysses),
    and keys and values (ring). `share`: steps x guidance branches x compute fraction / number of GPUs.
    """
    local = share * work.operations.exchanged_bytes
    ulysses = 4 * local * (split.ulysses - 1) / split.ulysses / (own.ulysses_fraction * gpu.link)
    ring = 2 * local * (split.ring - 1) / (shared.ring_fraction * gpu.link)
    calls = share * split.gpus / (work.shape.branches if work.shape.concatenates else 1)
    return ulysses + ring + calls * work.operations.attentions * shared.exchange_seconds / work.batch


def splits(shape: Architecture, gpus: int) -> list[Split]:
    """All ways to share the tokens among `gpus` GPUs; the Ulysses degree divides the number of attention heads."""
    degrees = [degree for degree in range(1, gpus + 1) if gpus % degree == 0 and shape.heads % degree == 0]
    return [Split(degree, gpus // degree) for degree in degrees]
