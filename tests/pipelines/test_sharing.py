import multiprocessing
import os
import socket
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from diffusers import WanPipeline

from galaxydit.pipelines.additions import share_video
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.runs import Rank
from galaxydit.pipelines.settings import GenerationSettings

SIZE = 2
SETTINGS = GenerationSettings(32, 32, 5, steps=3, guidance_scale=3.0, fps=8.0)


def listeners() -> set[tuple[str, int]]:
    connections = psutil.Process().net_connections(kind="inet")
    return {tuple(each.laddr) for each in connections if each.status == psutil.CONN_LISTEN}


def work(rank: int, folder: Path, pipe: WanPipeline) -> None:
    """One process, without a GPU."""
    inherited = listeners()  # a fork has the sockets that earlier tests of this process left open
    torch.set_num_threads(1)
    torch.accelerator.device_count = lambda: SIZE  # type: ignore[method-assign,assignment]
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=(folder / "port").read_text(), RANK=str(rank))
    os.environ.update(WORLD_SIZE=str(SIZE), LOCAL_RANK="0")
    share_video(pipe, Rank(rank, SIZE))
    hosts = {host for host, _ in listeners() - inherited}
    assert hosts <= {"127.0.0.1"}, "the network cannot reach it"
    assert hosts or rank, "the first process listens"
    np.save(folder / f"{rank}.npy", generate(pipe, "a cat", SETTINGS, seed=1).frames)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_processes_that_share_a_video_make_the_same_as_one(tmp_path: Path, tiny_wan_pipeline: WanPipeline):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        (tmp_path / "port").write_text(str(probe.getsockname()[1]))
    context = multiprocessing.get_context("fork")
    ranks = [context.Process(target=work, args=(rank, tmp_path, tiny_wan_pipeline)) for rank in range(SIZE)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(timeout=120)
        process.kill()
    assert [process.exitcode for process in ranks] == [0] * SIZE
    share_video(tiny_wan_pipeline, Rank())
    alone = generate(tiny_wan_pipeline, "a cat", SETTINGS, seed=1).frames
    for rank in range(SIZE):
        np.testing.assert_allclose(np.load(tmp_path / f"{rank}.npy"), alone, atol=1e-4)
