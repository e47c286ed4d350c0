"""Ranks that share one video's tokens (context parallelism) or the weights (FSDP2) must make the same decisions."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, distributed, nn


def token_group(transformer: nn.Module) -> Any | None:
    """The process group that shares one video's tokens, or None; other ranks of the world may generate other videos."""
    parallel = getattr(transformer, "_parallel_config", None)
    context = getattr(parallel, "context_parallel_config", None)
    if context is None:
        return None
    return context._flattened_mesh.get_group()


def sum_over(group: Any | None, sums: Tensor) -> Tensor:
    """The sums over all ranks of `group`, in place."""
    if group is not None:
        distributed.all_reduce(sums, group=group)
    return sums


def shares_weights(transformer: nn.Module) -> bool:
    """Whether parameters are sharded among ranks, so that a block runs on all of them or on none."""
    return _sharded(transformer) is not None


def _sharded(transformer: nn.Module) -> Any | None:
    if not (distributed.is_available() and distributed.is_initialized()):
        return None
    for parameter in transformer.parameters():
        if getattr(parameter, "placements", None):  # a DTensor
            return parameter
    return None


def on_any_rank(transformer: nn.Module, flags: Sequence[bool]) -> list[bool]:
    """For each flag, whether any rank with a shard of the weights sets it; all of them must call this."""
    sharded = _sharded(transformer)
    if sharded is None:
        return list(flags)
    mesh = sharded.device_mesh
    values = torch.tensor(flags, dtype=torch.int32, device=mesh.device_type)
    for axis, placement in enumerate(sharded.placements):
        if placement.is_shard():
            distributed.all_reduce(values, distributed.ReduceOp.MAX, group=mesh.get_group(axis))
    return [bool(value) for value in values.tolist()]


def agree_to_reuse(transformer: nn.Module, reuses: bool) -> bool:
    """Whether every rank that shares the weights reuses a call that is decided by its proxy."""
    if not shares_weights(transformer):
        return True
    any_computes = on_any_rank(transformer, [not reuses])[0]
    return not any_computes


def agree_before(
    transformer: nn.Module, *, is_decided: bool, is_reused: bool, corrects: bool, is_known: bool = True
) -> tuple[bool, bool]:
    """`(computes, corrects)`: whether a call must be computed because another rank computes it, and whether every rank
    corrects it.

    Corrections run hooks of blocks again with `reuse="residual"`. A rank that does not know its step (`is_known` is
    False) also calls this.
    """
    computes = not is_known or (is_decided and not is_reused)
    flags = [computes, is_decided, not is_decided, not corrects]
    any_computes, any_decided, any_undecided, any_spares = on_any_rank(transformer, flags)
    # Some ranks would leave before the blocks and others only after their proxy.
    differ = any_decided and any_undecided
    return any_computes or differ, not any_spares
