"""Several processes that compute one video together, each on its own device (context parallel)."""

import torch
from diffusers import ContextParallelConfig, DiffusionPipeline
from torch import distributed

from galaxydit.families import COMPONENTS
from galaxydit.pipelines.runs.run import Rank


def share_video(pipe: DiffusionPipeline, rank: Rank) -> None:
    """Split the tokens of every transformer among the processes of a worker, by Ulysses' exchange of heads
    (arXiv 2309.14509). Nothing happens for a single process.

    Raises ValueError if the model cannot be split, such as by a number of heads that `rank.size` does not divide.
    """
    if rank.size == 1:
        return
    if not distributed.is_initialized():
        distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    for name in COMPONENTS:
        if (transformer := getattr(pipe, name, None)) is not None:
            transformer.enable_parallelism(config=ContextParallelConfig(ulysses_degree=rank.size))
