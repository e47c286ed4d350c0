"""Convert the output of a transformer to tensors, pack these into one tensor, unpack it, and rebuild the output."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def tensors_of(output: Any) -> tuple[Tensor, ...]:
    """The predictions in what a transformer returned: one tensor, or two for video and audio; empty if it holds
    anything but tensors and None, because only tensors can be predicted."""
    if isinstance(output, Tensor):
        return (output,)
    values = output
    if not isinstance(output, tuple):
        values = getattr(output, "to_tuple", tuple)()  # an output class of diffusers, or nothing known
    tensors = []
    for value in values:
        if isinstance(value, Tensor):
            tensors.append(value)
        elif value is not None:
            return ()
    return tuple(tensors)


def pack(tensors: Sequence[Tensor]) -> Tensor:
    """A copy of a single tensor; several tensors are flattened and joined to one new tensor `(batch, elements)`."""
    if len(tensors) == 1:
        return tensors[0].clone()
    flat = [tensor.flatten(1) for tensor in tensors]
    return torch.cat(flat, dim=1)


def unpack(packed: Tensor, shapes: tuple[torch.Size, ...]) -> tuple[Tensor, ...]:
    """The tensors of these shapes that `pack` joined; the batch sizes in the shapes are ignored."""
    if len(shapes) < 2:
        return (packed,)
    sizes = [shape[1:].numel() for shape in shapes]
    tensors = []
    for part, shape in zip(packed.split(sizes, dim=1), shapes, strict=True):
        tensors.append(part.view(-1, *shape[1:]))
    return tuple(tensors)


def build_output(tensors: tuple[Tensor, ...], kind: type) -> Any:
    """The predictions as a transformer returns them: a tensor, a tuple, or an output class of diffusers."""
    if issubclass(kind, Tensor):
        return tensors[0]
    if kind is tuple:
        return tensors
    return kind(*tensors)
