"""Context parallelism: each rank sees a part of the tokens, and all of them must come to one decision."""

from typing import Any

from torch import Tensor, distributed, nn


def token_group(transformer: nn.Module) -> Any | None:
    """The process group that shares one video's tokens; None where each process sees all of them.

    Not the world: other processes may be at work on other videos, with other numbers of steps.
    """
    parallel = getattr(transformer, "_parallel_config", None)
    context = getattr(parallel, "context_parallel_config", None)
    return None if context is None else context._flattened_mesh.get_group()


def sum_over(group: Any | None, sums: Tensor) -> Tensor:
    """Sums over one rank's tokens, added up to those over all tokens: the same numbers on every rank."""
    if group is not None:
        distributed.all_reduce(sums, group=group)
    return sums
