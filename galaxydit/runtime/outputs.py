"""Convert the output of a transformer to tensors, pack these into one tensor, unpack it, and rebuild the output."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def tensors_of(output: Any) -> tuple[Tensor, ...]:
    """The predictions in what a transformer returned: one tensor, or two for video and audio; empty if it holds
    anything but tensors and None, because only tensors can be predicted."""
    values = (output,) if isinstance(output, Tensor) else output
    if not isinstance(values, tuple):
        values = getattr(output, "to_tuple", tuple)()
    values = tuple(value for value in values if value is not None)
    return values if all(isinstance(value, Tensor) for value in values) else ()


def pack(tensors: Sequence[Tensor]) -> Tensor:
    """A copy of a single tensor; several tensors are flattened and joined to one new tensor `(batch, elements)`."""
    if len(tensors) == 1:
        return tensors[0].clone()
    return torch.cat([tensor.flatten(1) for tensor in tensors], dim=1)


def unpack(packed: Tensor, shapes: tuple[torch.Size, ...]) -> tuple[Tensor, ...]:
    """The tensors of these shapes that `pack` joined; the batch sizes in the shapes are ignored."""
    if len(shapes) < 2:
        return (packed,)
    parts = packed.split([shape[1:].numel() for shape in shapes], dim=1)
    return tuple(part.view(-1, *shape[1:]) for part, shape in zip(parts, shapes, strict=True))


def build_output(tensors: tuple[Tensor, ...], kind: type) -> Any:
    """The predictions as a transformer returns them: a tensor, a tuple, or an output class of diffusers."""
    if issubclass(kind, Tensor):
        return tensors[0]
    return tensors if kind is tuple else kind(*tensors)
