"""The rows of a batch: of n samples, sample i has the rows i, i + n, i + 2 n and so on, one for each branch in it."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
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
    return [row for row in range(rows) if row % count in places]


def take_rows(value: Any, rows: list[int], count: int) -> Any:
    """These rows of a tensor, or of each in a tuple, in a batch of `count` rows; None if that is impossible. A tensor
    may hold several entries for each row, next to each other."""
    if isinstance(value, tuple):
        taken = []
        for item in value:
            part = take_rows(item, rows, count)
            if part is None:
                return None
            taken.append(part)
        return tuple(taken)
    if not isinstance(value, Tensor) or value.ndim == 0 or len(value) % count:
        return None
    index = torch.tensor(rows, device=value.device)
    return value.unflatten(0, (count, -1)).index_select(0, index).flatten(0, 1)


@beside_the_model
def take_inputs(inputs: Mapping[str, Any], rows: list[int], count: int) -> dict[str, Any]:
    """The inputs of a call for some `rows` of its `count`: tensors with `count` rows keep only these, and so do several
    images for each row in `encoder_hidden_states_image`. Vectors that count positions or layers are unchanged."""
    taken = {}
    for name, value in inputs.items():
        is_divided = _has_rows(value, count)
        if is_divided and value.ndim == 1 and _is_shared(name):
            is_divided = False  # it is as long as the batch by chance
        if name == "encoder_hidden_states_image" and isinstance(value, Tensor):
            is_divided = len(value) % count == 0
        taken[name] = take_rows(value, rows, count) if is_divided else value
    return taken


def are_divisible(inputs: Mapping[str, Any], count: int) -> bool:
    """Whether `take_inputs` can divide a batch of `count` rows: none are in a list, tuple or mapping."""
    for name, value in inputs.items():
        if _is_shared(name):
            continue
        items: Iterable[Any] = ()
        if isinstance(value, Mapping):
            items = value.values()
        elif isinstance(value, list | tuple):
            items = value
        if any(_has_rows(item, count) for item in items):
            return False
    return True


def join_samples(tensors: Sequence[Tensor]) -> Tensor:
    """Interleave the tensors of all samples, each `(branches, ...)`, into one batch."""
    if len(tensors) == 1:
        return tensors[0]
    return torch.stack(tuple(tensors), dim=1).flatten(0, 1)


@beside_the_model
def join_rows(parts: Sequence[Sequence[Tensor]], rows: Sequence[Sequence[int]]) -> tuple[Tensor, ...]:
    """Put the outputs of several calls back into the order of the batch; `rows` are the batch rows of each call."""
    # On the CPU, also if the user has set another default device, where sorting would wait for the queue.
    places = torch.tensor(list(chain.from_iterable(rows)), device="cpu").argsort()
    outputs = []
    for tensors in zip(*parts, strict=True):
        output = torch.cat(tensors)
        outputs.append(output.index_select(0, places.to(output.device)))
    return tuple(outputs)


def _has_rows(value: Any, count: int) -> bool:
    return isinstance(value, Tensor) and value.ndim > 0 and len(value) == count


def _is_shared(name: str) -> bool:
    """Whether the first dimension of the transformer's argument `name` counts positions or layers, not batch rows."""
    return any(word in name for word in ("indices", "rope", "rotary", "scale"))
