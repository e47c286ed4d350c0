"""True clock readings: wait until a device has finished its queue."""

import torch


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished its queue, so that a clock read afterwards is true."""
    if device.type not in ("cpu", "meta"):
        torch.accelerator.synchronize(device)
