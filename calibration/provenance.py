"""Facts about a pipeline and its environment that a calibration depends on."""

import platform
from importlib.metadata import version

import torch
from diffusers import DiffusionPipeline

PACKAGES = ("galaxydit", "diffusers", "torch", "transformers", "scipy", "numpy", "av")


def package_versions() -> dict[str, str]:
    """Installed versions of the packages that results depend on, by package name."""
    return {name: version(name) for name in PACKAGES}


def device_name(pipe: DiffusionPipeline) -> str:
    """Name of the device on which `pipe` computes, such as "NVIDIA H200" or "cpu x86_64"."""
    device = pipe._execution_device  # pipe.device is the CPU where weights are offloaded
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type} {platform.machine()}"
