"""Context parallelism: each rank holds a part of the tokens, and all ranks must make the same decision."""

from typing import Any

from torch import Tensor, distributed, nn


def token_group(transformer: nn.Module) -> Any | None:
    """The process group that shares one video's tokens; None where each process holds all of them.

    It is not the world group, because other processes may generate other videos with other numbers of steps.
    """
    parallel = getattr(transformer, "_parallel_config", None)
    context = getattr(parallel, "context_parallel_config", None)
    return None if context is None else context._flattened_mesh.get_group()


def sum_over(group: Any | None, sums: Tensor) -> Tensor:
    """The sums over all tokens, equal on every rank of `group`, from this rank's `sums` over its own tokens.

    Changes `sums` in place. Without a group (None), `sums` are returned as they are.
    """
    if group is not None:
        distributed.all_reduce(sums, group=group)
    return sums
