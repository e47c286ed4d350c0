"""The rows of a batch: of n samples, sample i has the rows i, i + n, i + 2 n and so on, one for each branch in it."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from galaxydit.torch_compile import beside_the_model


def sample_count(latent: Tensor) -> int:
    """Number of samples in `latent`, which guidance in one batch repeats: a half or a third of its rows where these
    parts are equal, else all of them."""
    rows = len(latent)
    for branches in (2, 3):
        if rows % branches == 0:
            first, *others = latent.chunk(branches)
            if all(torch.equal(first, other) for other in others):
                return rows // branches
    return rows


def rows_of(places: Sequence[int], count: int, rows: int) -> list[int]:
    """Indices of the rows of the samples at these places, in a batch of `count` samples and `rows` rows."""
    chosen = set(places)
    return [row for row in range(rows) if row % count in chosen]


def take_rows(value: Any, rows: list[int], count: int) -> Any:
    """These rows of a tensor, or of each in a tuple, in a batch of `count` rows; None if that is impossible. A tensor
    may hold several entries for each row, next to each other."""
    if isinstance(value, tuple):
        taken = tuple(take_rows(item, rows, count) for item in value)
        return None if any(item is None for item in taken) else taken
    if not isinstance(value, Tensor) or value.ndim == 0 or len(value) % count:
        return None
    index = torch.tensor(rows, device=value.device)
    return value.unflatten(0, (count, -1)).index_select(0, index).flatten(0, 1)


@beside_the_model
def take_inputs(inputs: Mapping[str, Any], rows: list[int], count: int) -> dict[str, Any]:
    """The inputs of a call for some `rows` of its `count`: tensors with `count` rows keep only these, and so do several
    images for each row in `encoder_hidden_states_image`. Vectors that count positions or layers are unchanged."""
    return {
        name: take_rows(value, rows, count)
        if (_has_rows(value, count) and not (value.ndim == 1 and _is_shared(name)))
        or (name == "encoder_hidden_states_image" and isinstance(value, Tensor) and len(value) % count == 0)
        else value
        for name, value in inputs.items()
    }


def are_divisible(inputs: Mapping[str, Any], count: int) -> bool:
    """Whether `take_inputs` can divide a batch of `count` rows: none are in a list, tuple or mapping."""
    for name, value in inputs.items():
        held = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
        if not _is_shared(name) and any(_has_rows(item, count) for item in held):
            return False
    return True


def join_samples(tensors: Sequence[Tensor]) -> Tensor:
    """Interleave the tensors of all samples, each `(branches, ...)`, into one batch."""
    return tensors[0] if len(tensors) == 1 else torch.stack(tuple(tensors), dim=1).flatten(0, 1)


@beside_the_model
def join_rows(parts: Sequence[Sequence[Tensor]], rows: Sequence[Sequence[int]]) -> tuple[Tensor, ...]:
    """Put the outputs of several calls back into the order of the batch; `rows` are the batch rows of each call."""
    order = torch.tensor([row for part in rows for row in part], device="cpu")
    outputs = [torch.cat(tensors) for tensors in zip(*parts, strict=True)]
    return tuple(output.index_select(0, order.argsort().to(output.device)) for output in outputs)


def _has_rows(value: Any, count: int) -> bool:
    return isinstance(value, Tensor) and value.ndim > 0 and len(value) == count


def _is_shared(name: str) -> bool:
    """Whether the first dimension of the transformer's argument `name` counts positions or layers, not batch rows."""
    return any(word in name for word in ("indices", "rope", "rotary", "scale"))
