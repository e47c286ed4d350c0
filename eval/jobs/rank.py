"""Which process of a job this is, and its device."""

import os
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Rank:
    """A process among those that a launcher started, as it tells in the environment.

    Processes of a job exchange nothing but files, so no process group is opened: in it each would wait for all others,
    and after torchrun has restarted the ranks that wait may never end.

    Attributes:
        index: among all processes, from 0.
        local: among those of this machine, from 0.
    """

    index: int = 0
    local: int = 0

    @property
    def is_main(self) -> bool:
        """Whether this process speaks for all."""
        return self.index == 0

    def take_device(self) -> torch.device:
        """A GPU for this process, made the current one; the CPU where there is none."""
        if not torch.cuda.is_available():
            return torch.device("cpu")
        device = torch.device("cuda", self.local % torch.cuda.device_count())
        torch.cuda.set_device(device)
        return device


def this_rank() -> Rank:
    """From RANK and LOCAL_RANK, which torchrun and `accelerate launch` set; rank 0 without them."""
    return Rank(int(os.environ.get("RANK", 0)), int(os.environ.get("LOCAL_RANK", 0)))
