"""The measuring commands of this folder in several processes that share the device."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import as_completed
from typing import Annotated, TypeVar

import typer

from galaxydit.pipelines.runs.in_processes import process_pool

Processes = Annotated[int, typer.Option("--processes", min=1, help="Processes that share this machine's device.")]

T = TypeVar("T")
R = TypeVar("R")


def mapped(function: Callable[[T], R], items: Sequence[T], processes: int) -> Iterator[R]:
    """The results of `function`, a picklable one, for all items, in the order in which they come."""
    if processes == 1:
        yield from map(function, items)
        return
    with process_pool(processes) as pool:
        made = [pool.submit(function, item) for item in items]
        try:
            for future in as_completed(made):
                yield future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
