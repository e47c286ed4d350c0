"""Several processes that compute one video together, each on its own device (context parallel)."""

import torch
from diffusers import ContextParallelConfig, DiffusionPipeline
from torch import distributed

from galaxydit.families import transformers_of
from galaxydit.pipelines.runs.run import Rank


def share_video(pipe: DiffusionPipeline, rank: Rank) -> None:
    """Split the tokens of every transformer among `rank.size` processes, by Ulysses' exchange of heads
    (arXiv 2309.14509). Nothing happens for a single process.

    Each of these processes calls this function with its own pipeline. torch's environment variables for distributed
    processes, such as MASTER_ADDR, must be set, so that the processes find each other.

    Raises ValueError if diffusers has no plan (`_cp_plan`) for splitting a model. If `rank.size` does not divide the
    number of heads or tokens, this function succeeds and calls of the transformer fail.
    """
    if rank.size == 1:
        return
    if not distributed.is_initialized():
        distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    for name in transformers_of(pipe):
        getattr(pipe, name).enable_parallelism(config=ContextParallelConfig(ulysses_degree=rank.size))
