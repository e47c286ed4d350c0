"""The samples of a batch: how many there are, which rows belong to each, and a call of some of them.

A batch of n samples has the rows of sample i at i, i + n, i + 2 n and so on: one row for each guidance branch that the
pipeline concatenates.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from galaxydit.families import CONCATENATED, Family
from galaxydit.torch_compile import beside_the_model


def sample_count(latent: Tensor, family: Family) -> int:
    """Number of samples in `latent`, which guidance in one batch repeats two or three times."""
    rows = len(latent)
    if family.branches == CONCATENATED:
        for branches in (2, 3):
            if rows % branches == 0:
                first, *others = latent.chunk(branches)
                if all(torch.equal(first, other) for other in others):
                    return rows // branches
    return rows


def rows_of(places: Sequence[int], count: int, rows: int) -> list[int]:
    """The rows, out of `rows`, of the samples at these places of `count`."""
    chosen = set(places)
    return [row for row in range(rows) if row % count in chosen]


@beside_the_model
def take_rows(value: Any, rows: list[int], count: int) -> Any:
    """These rows of a tensor, or of each tensor of a tuple; None where it holds anything else.

    A tensor may have a multiple of `count` rows: those of a sample follow one another.
    """
    if isinstance(value, tuple):
        taken = tuple(take_rows(one, rows, count) for one in value)
        return None if any(one is None for one in taken) else taken
    if not isinstance(value, Tensor) or value.ndim == 0 or len(value) % count:
        return None
    index = torch.tensor(rows, device=value.device)
    return value.unflatten(0, (count, -1)).index_select(0, index).flatten(0, 1)


@beside_the_model
def take_inputs(inputs: Mapping[str, Any], rows: list[int], count: int) -> dict[str, Any]:
    """The inputs of a call of these rows: tensors with `count` rows lose the others, all else is passed as it is.

    `encoder_hidden_states_image` may have several images for each row, such as a first and a last frame.
    """
    return {
        name: take_rows(value, rows, count)
        if (_has_rows(value, count) and not (value.ndim == 1 and _is_shared(name)))
        or (name == "encoder_hidden_states_image" and isinstance(value, Tensor) and len(value) % count == 0)
        else value
        for name, value in inputs.items()
    }


def are_divisible(inputs: Mapping[str, Any], count: int) -> bool:
    """Whether no input holds tensors with `count` rows inside another object, because those are not taken apart."""
    for name, value in inputs.items():
        held = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
        if not _is_shared(name) and any(_has_rows(one, count) for one in held):
            return False
    return True


@beside_the_model
def join_samples(tensors: Sequence[Tensor]) -> Tensor:
    """The batch of the samples whose rows these are, `(branches, ...)` each."""
    return tensors[0] if len(tensors) == 1 else torch.stack(tuple(tensors), dim=1).flatten(0, 1)


@beside_the_model
def join_rows(parts: Sequence[Sequence[Tensor]], rows: Sequence[Sequence[int]]) -> tuple[Tensor, ...]:
    """Put the outputs of several calls, of these rows each, back into the order of the batch."""
    order = torch.tensor([row for part in rows for row in part])
    outputs = [torch.cat(tensors) for tensors in zip(*parts, strict=True)]
    return tuple(output.index_select(0, order.argsort().to(output.device)) for output in outputs)


def _has_rows(value: Any, count: int) -> bool:
    return isinstance(value, Tensor) and value.ndim > 0 and len(value) == count


def _is_shared(name: str) -> bool:
    """Whether an input of one axis with this name has one entry for each position or layer, not for each sample."""
    return any(word in name for word in ("indices", "rope", "rotary", "scale"))
