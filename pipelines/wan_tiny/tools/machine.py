"""What this machine trains on: its device, and whether that is fast in bfloat16."""

import torch


def training_device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def fast_dtype(device: torch.device) -> torch.dtype:
    """bfloat16 where the device multiplies it faster than float32, else float32.

    A CPU without instructions for bfloat16 emulates it, which takes three times as long as float32.
    """
    if device.type == "cuda":
        has_bfloat16 = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        has_bfloat16 = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return torch.bfloat16 if has_bfloat16 else torch.float32
