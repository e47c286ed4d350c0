"""Read numbers of a device later than they are computed, so that the host need not wait for its queue."""

import torch
from torch import Tensor


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
