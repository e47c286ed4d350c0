"""Where the processes that share a video meet: torch's process group, on one machine without a listener outside it."""

import os
import socket

import torch
from torch import distributed

from galaxydit.pipelines.runs.loopback import is_loopback
from galaxydit.pipelines.runs.run import Rank


def meet(rank: Rank) -> None:
    """Join the process group at MASTER_ADDR and MASTER_PORT, unless this process is in one."""
    if distributed.is_initialized():
        return
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    if not is_loopback(os.environ.get("MASTER_ADDR", "")):
        distributed.init_process_group(backend)
        return
    if "lo" in (name for _, name in socket.if_nameindex()):
        interface = "lo"
    else:
        interface = "lo0"
    for variable in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        os.environ.setdefault(variable, interface)
    store = _store_on_loopback(rank)
    distributed.init_process_group(backend, store=store, rank=rank.index, world_size=rank.size)


def _store_on_loopback(rank: Rank) -> distributed.TCPStore:
    """The store of the group; one that torch makes by itself would listen on all addresses."""
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    if rank.index > 0:
        return distributed.TCPStore(host, port, rank.size, is_master=False)
    listener = socket.create_server((host, port))
    return distributed.TCPStore(
        host, port, rank.size, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach()
    )
