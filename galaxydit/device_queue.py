"""Wait until a device has finished its queue, or read numbers later, so that the host need not wait."""

import torch
from torch import Tensor


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished its queue, so that a clock read afterwards is true."""
    if device.type not in ("cpu", "meta"):
        torch.accelerator.synchronize(device)


class HostCopy:
    """A small tensor's copy in host memory, which the device makes when it reaches it."""

    def __init__(self, tensor: Tensor) -> None:
        self._copied: torch.cuda.Event | None = None
        self._tensor = tensor
        if tensor.is_cuda:
            self._tensor = tensor.to("cpu", non_blocking=True)  # into pinned memory
            self._copied = torch.cuda.Event()
            self._copied.record(torch.cuda.current_stream(tensor.device))

    def tensor(self) -> Tensor:
        """The copy; waits until it is made. On a device other than CUDA's, reading it waits for the queue."""
        if self._copied is not None:
            self._copied.synchronize()
        return self._tensor
