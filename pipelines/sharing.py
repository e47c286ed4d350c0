"""Several processes that compute one video together, each on its own device (context parallel)."""

import torch
from diffusers import ContextParallelConfig, DiffusionPipeline
from torch import distributed

from galaxydit.pipelines.runs.run import Rank
from galaxydit.runtime.recognition import transformers_of


def share_video(pipe: DiffusionPipeline, rank: Rank) -> None:
    """Split the tokens of every transformer among `rank.size` processes, by Ulysses (arXiv 2309.14509).

    Each process calls this, with torch's variables such as MASTER_ADDR set. Raises ValueError without a plan of
    diffusers (`_cp_plan`); sizes that do not divide heads or tokens fail only in calls of the transformer.
    """
    if rank.size == 1:
        return
    if not distributed.is_initialized():
        distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    for name in transformers_of(pipe):
        getattr(pipe, name).enable_parallelism(config=ContextParallelConfig(ulysses_degree=rank.size))
