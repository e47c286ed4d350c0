"""Run the transformers of a pipeline in float32 for a while, because rounding hides how little outputs change."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from diffusers import DiffusionPipeline
from torch import Tensor, nn

from galaxydit.errors import GalaxyDiTError
from galaxydit.families import transformers_of

ROUNDED = (torch.float16, torch.bfloat16)


def is_rounded(pipe: DiffusionPipeline) -> bool:
    """Whether the transformers have 16-bit weights that `in_float32` can convert.

    It can convert them if all weights are loaded, floating-point and plain tensors: neither quantised nor offloaded
    layer by layer.
    """
    weights = [weight for transformer in transformers_of(pipe).values() for weight in transformer.parameters()]
    plain = all(type(weight.data) is Tensor and weight.is_floating_point() and not weight.is_meta for weight in weights)
    return plain and any(weight.dtype in ROUNDED for weight in weights)


@contextmanager
def in_float32(pipe: DiffusionPipeline) -> Iterator[None]:
    """Within the context, the 16-bit weights, buffers and inputs of the transformers are in float32.

    Meanwhile the weights take twice their memory. Afterwards each weight and buffer has its own dtype again. Raises
    GalaxyDiTError if the device runs out of memory within the context.
    """
    transformers = list(transformers_of(pipe).values())
    tensors = [tensor for transformer in transformers for tensor in (*transformer.parameters(), *transformer.buffers())]
    rounded = [(tensor, tensor.dtype) for tensor in tensors if tensor.dtype in ROUNDED]
    with ExitStack() as restored:
        for tensor, dtype in rounded:
            restored.callback(_convert, tensor, dtype)
        try:
            for tensor, _ in rounded:
                _convert(tensor, torch.float32)
            for transformer in transformers:  # some pipelines cast what they pass to the dtype of the text encoder
                restored.enter_context(transformer.register_forward_pre_hook(widen, with_kwargs=True))
            yield
        except torch.OutOfMemoryError as error:
            raise GalaxyDiTError(
                "the device has too little memory for the transformers in float32: pass float32=False (option "
                "--no-float32), which records in the dtype of the model"
            ) from error


def _convert(tensor: Tensor, dtype: torch.dtype) -> None:
    tensor.data = tensor.data.to(dtype)


def widen(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A forward pre-hook that converts a module's 16-bit inputs to float32."""
    return tuple(map(_widened, args)), {name: _widened(value) for name, value in kwargs.items()}


def _widened(value: Any) -> Any:
    """`value` with its 16-bit tensors in float32, also within lists and tuples."""
    if isinstance(value, list | tuple):
        return type(value)(map(_widened, value))
    return value.float() if isinstance(value, Tensor) and value.dtype in ROUNDED else value
