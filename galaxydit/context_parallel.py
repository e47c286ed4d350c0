"""Ranks that share one video's tokens (context parallelism) or the weights (FSDP2) must make the same decisions."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, distributed, nn

from galaxydit.policies.policy import Decision, Reason

if TYPE_CHECKING:
    from galaxydit.runtime.call import Call


def token_group(transformer: nn.Module) -> Any | None:
    """The process group that shares one video's tokens, or None; other ranks of the world may generate other videos."""
    parallel = getattr(transformer, "_parallel_config", None)
    context = getattr(parallel, "context_parallel_config", None)
    return None if context is None else context._flattened_mesh.get_group()


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
    return next((each for each in transformer.parameters() if getattr(each, "placements", None)), None)


def on_any_rank(transformer: nn.Module, flags: Sequence[bool]) -> list[bool]:
    """For each flag, whether any rank with a shard of the weights sets it; all of them must call this."""
    if (sharded := _sharded(transformer)) is None:
        return list(flags)
    mesh = sharded.device_mesh
    values = torch.tensor(flags, dtype=torch.int32, device=mesh.device_type)
    for axis, placement in enumerate(sharded.placements):
        if placement.is_shard():
            distributed.all_reduce(values, distributed.ReduceOp.MAX, group=mesh.get_group(axis))
    return [bool(value) for value in values.tolist()]


def agree(transformer: nn.Module, decisions: tuple[Decision, ...], has_history: Sequence[bool]) -> tuple[Decision, ...]:
    """The decisions of a call by its proxy; all compute if a rank that shares the weights computes any."""
    if not shares_weights(transformer):
        return decisions
    reuses = all(decision.reuse and known for decision, known in zip(decisions, has_history, strict=True))
    return decisions if not on_any_rank(transformer, [not reuses])[0] else _computed(decisions)


def agree_before(transformer: nn.Module, call: "Call | None", corrects: bool) -> None:
    """Let a call compute where another rank must, and correct only where every rank `corrects`.

    Corrections run hooks of blocks again with `reuse="residual"`. A rank that does not know its step (None) also calls
    this.
    """
    decided = call is not None and bool(call.decisions)
    computes = call is None or (decided and not call.is_reused)
    computes, any_decided, any_undecided, spared = on_any_rank(
        transformer, [computes, decided, not decided, not corrects]
    )
    if call is not None:
        call.may_correct = not spared
        if computes or (any_decided and any_undecided):
            call.decisions = _computed(call.decisions or (Decision(True, Reason.OTHER_RANK),) * len(call.samples))


def _computed(decisions: tuple[Decision, ...]) -> tuple[Decision, ...]:
    return tuple(replace(each, reuse=False, reason=Reason.OTHER_RANK) if each.reuse else each for each in decisions)
