"""The measuring commands of this folder in several processes that share the device."""

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Annotated, TypeVar

import torch
import typer

Processes = Annotated[int, typer.Option("--processes", min=1, help="Processes that share this machine's device.")]

T = TypeVar("T")
R = TypeVar("R")


def mapped(function: Callable[[T], R], items: Sequence[T], processes: int) -> Iterator[R]:
    """The results of `function`, a picklable one, for all items, in the order in which they come."""
    if processes == 1:
        yield from map(function, items)
        return
    threads = max(1, (os.cpu_count() or 1) // processes)
    # A forked process could not use CUDA.
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        processes, mp_context=spawn, initializer=torch.set_num_threads, initargs=(threads,)
    ) as pool:
        made = [pool.submit(function, item) for item in items]
        try:
            for future in as_completed(made):
                yield future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
