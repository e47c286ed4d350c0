"""GPUs that seconds and joules are predicted for, and the attention kernels that they can run."""

import re
from dataclasses import dataclass
from importlib.metadata import version

from galaxydit.errors import check_choice, refusal


@dataclass(frozen=True)
class Gpu:
    """Peak rates, power limit and memory of a GPU, from its data sheet, in units of one second, byte and watt."""

    name: str
    like: str  # GPU whose fitted constants are used
    matrix_flops: float  # dense bfloat16 products
    ampere_flops: float  # of FlashAttention-2's instructions: 2,048 per multiprocessor and cycle from A100 to B200
    exponentials: float  # 16 per multiprocessor and cycle
    bandwidth: float  # of memory
    link: float  # NVLink or PCIe, in one direction
    watts: float
    memory: float


GPUS = {
    gpu.name: gpu
    for gpu in (
        Gpu("H100", "H100", 989e12, 474e12, 3.7e12, 3.35e12, 450e9, 700.0, 80e9),
        Gpu("H200", "H100", 989e12, 474e12, 3.7e12, 4.8e12, 450e9, 700.0, 141e9),
        Gpu("B200", "B200", 2250e12, 532e12, 4.4e12, 8e12, 900e9, 1000.0, 180e9),
        Gpu("A100", "H100", 312e12, 312e12, 2.4e12, 2.04e12, 300e9, 400.0, 80e9),
        Gpu("RTX 4090", "H100", 165e12, 165e12, 5.2e12, 1.01e12, 32e9, 450.0, 24e9),
    )
}
"""GPUs by name, with the SXM modules' figures where there are several.

Sources: NVIDIA's data sheets of H100 and H200 (132 multiprocessors, 1.755 GHz), HGX B200 (148), A100 80 GB (108,
1.41 GHz) and RTX 4090 (128, 2.52 GHz; bfloat16 with float32 sums).
"""
FLASH = "FlashAttention-2"
CUDNN = "cuDNN"
FLASH_3 = "FlashAttention-3"
BACKENDS = {
    FLASH: ("flash", "flash_hub", "flash_varlen", "flash_varlen_hub", "_native_flash"),
    CUDNN: ("_native_cudnn",),
    FLASH_3: ("_flash_3", "_flash_3_hub", "_flash_varlen_3", "_flash_3_varlen_hub"),
}
"""By attention kernel: the names that diffusers' `set_attention_backend` gives the backends with this kernel."""


def gpu_of(name: str) -> Gpu:
    """The GPU with this name, such as "rtx-4090". Raises GalaxyDiTError for a name that `GPUS` lacks."""
    known = {key.casefold(): key for key in GPUS}
    plain = name.casefold().replace("-", " ") if isinstance(name, str) else name
    if plain not in known:
        check_choice("gpu", name, tuple(known))
    return GPUS[known[plain]]


def gpu_named(product: str) -> Gpu | None:
    """The GPU of a product name such as "NVIDIA H100 80GB HBM3", or None."""
    named = re.search(rf"\b({'|'.join(GPUS)})\b(?!.*\b(PCIe|PCIE|NVL|Laptop|D)\b)", product)
    if named:
        return GPUS[named[1]]
    return None


def kernel_of(backend: str, gpu: Gpu, *, masked: bool = False) -> str:
    """The attention kernel of a backend; of "native" the one that the installed PyTorch chooses on the GPU.

    PyTorch from 2.11 for CUDA 13 chooses cuDNN on Hopper and Blackwell (`check_prefer_cudnn_attention` in its
    sdp_utils.cpp). With a mask, cuDNN is assumed to be as slow as FlashAttention-2: nobody measured it.
    """
    kernels = {}
    for kernel, names in BACKENDS.items():
        for name in names:
            kernels[name] = kernel
    if backend == "native":
        torch = version("torch")
        major, minor = torch.split(".")[:2]
        is_recent = (int(major), int(minor)) >= (2, 11) and "+cu12" not in torch
        kernel = FLASH
        if is_recent and gpu.name in ("H100", "H200", "B200"):
            kernel = CUDNN
    elif backend in kernels:
        kernel = kernels[backend]
    else:
        expected = f"native or one of {', '.join(kernels)}, because no measurement of another kernel is known"
        raise refusal("attention", backend, expected, "choose one of these")
    if kernel == FLASH_3 and gpu.name not in ("H100", "H200"):
        raise refusal("attention", backend, f"a kernel that runs on {gpu.name}", "pass for example flash")
    if masked and kernel == CUDNN:
        return FLASH
    return kernel
