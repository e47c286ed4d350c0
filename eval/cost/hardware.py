"""GPUs that seconds and joules are predicted for."""

from dataclasses import dataclass

from galaxydit.errors import check_choice


@dataclass(frozen=True)
class Gpu:
    """Peak rates, power limit and memory of a GPU, from its data sheet.

    Attributes:
        matrix_flops: operations per second of dense bfloat16 matrix products.
        attention_flops: dense bfloat16 operations per second that FlashAttention-2 can use. Its kernels use Hopper's
            instructions, so a multiprocessor of B200 counts like one of H100.
        exponentials: exponentials per second, 16 for each multiprocessor and clock cycle.
        bandwidth: of memory, bytes per second.
        link: NVLink, bytes per second in one direction.
        watts: power limit.
        memory: capacity, bytes.
    """

    name: str
    matrix_flops: float
    attention_flops: float
    exponentials: float
    bandwidth: float
    link: float
    watts: float
    memory: float


GPUS = {
    gpu.name: gpu
    for gpu in (
        Gpu("H100", 989e12, 989e12, 3.7e12, 3.35e12, 450e9, 700.0, 80e9),
        Gpu("B200", 2250e12, 989e12 * 148 / 132, 4.4e12, 8e12, 900e9, 1000.0, 180e9),
    )
}
"""GPUs by name, with the SXM modules' figures.

Sources: NVIDIA's data sheets of H100 (132 multiprocessors, 1.755 GHz) and HGX B200 (148 multiprocessors).
"""


def gpu_of(name: str) -> Gpu:
    """The GPU with this name, in capital or small letters; raises GalaxyDiTError for a name that `GPUS` lacks."""
    known = {key.casefold(): key for key in GPUS}
    if not isinstance(name, str) or name.casefold() not in known:
        check_choice("gpu", name, tuple(known))
    return GPUS[known[name.casefold()]]


def gpu_named(product: str) -> Gpu | None:
    """The GPU of a product name such as "NVIDIA H100 80GB HBM3"; None for one that `GPUS` lacks and for PCIe cards."""
    return next((gpu for name, gpu in GPUS.items() if name in product.split() and "PCIe" not in product), None)
