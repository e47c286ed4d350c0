"""Run the transformers of a pipeline in float32 for a while, because rounding hides how little outputs change."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain
from typing import Any

import torch
from accelerate.utils import convert_to_fp32
from diffusers import DiffusionPipeline
from torch import Tensor, nn

from galaxydit.runtime.recognition import blocks_of, family_of, transformers_of

ROUNDED = (torch.float16, torch.bfloat16)
SMALL = 2**20  # elements; larger weights of the blocks are widened for their module's call alone


def is_rounded(pipe: DiffusionPipeline) -> bool:
    """Whether `in_float32` can convert the weights: some have 16 bits, and all are plain tensors on their device."""
    some_have_16_bits = False
    for weight in _weights_of(pipe):
        if type(weight.data) is not Tensor or not weight.is_floating_point() or weight.is_meta:
            return False
        if weight.dtype in ROUNDED:
            some_have_16_bits = True
    return some_have_16_bits


def rounds(pipe: DiffusionPipeline) -> bool:
    """Whether some weights are not plain tensors of at least 32 bits, so that outputs may be rounded."""
    return any(type(weight.data) is not Tensor or weight.element_size() < 4 for weight in _weights_of(pipe))


def _weights_of(pipe: DiffusionPipeline) -> Iterator[nn.Parameter]:
    for transformer in transformers_of(pipe).values():
        yield from transformer.parameters()


@contextmanager
def in_float32(pipe: DiffusionPipeline) -> Iterator[None]:
    """Within the context, a pipeline that `is_rounded` denoises in float32 (TF32 products and convolutions on a GPU).

    The large weights of the blocks are widened for the call of their module alone, so memory grows by one layer and
    by the weights outside the blocks. Afterwards each weight has its own dtype again.
    """
    if not is_rounded(pipe):
        yield
        return
    with ExitStack() as restored:
        # Both, because cuDNN's convolutions use TF32 by default also where products do not.
        backends: tuple[Any, ...] = (torch.backends.cuda.matmul, torch.backends.cudnn)
        for backend in backends:
            restored.callback(setattr, backend, "allow_tf32", backend.allow_tf32)
            backend.allow_tf32 = True
        for transformer in transformers_of(pipe).values():
            of_module = _large_weights(transformer)
            # By identity, because `==` of tensors compares their elements.
            large = set(map(id, chain.from_iterable(of_module.values())))
            for tensor in (*transformer.parameters(), *transformer.buffers()):
                if tensor.dtype in ROUNDED and id(tensor) not in large:
                    restored.callback(_convert, tensor, tensor.dtype)
                    _convert(tensor, torch.float32)
            for module, weights in of_module.items():
                restored.enter_context(_widened_in_calls(module, weights))
            # Some pipelines cast what they pass to the dtype of the text encoder.
            restored.enter_context(transformer.register_forward_pre_hook(widen, with_kwargs=True))
        yield


def _large_weights(transformer: nn.Module) -> dict[nn.Module, list[nn.Parameter]]:
    """The weights of more than `SMALL` elements in the blocks' modules without submodules, by module."""
    by_module: dict[nn.Module, list[nn.Parameter]] = {}
    for block in blocks_of(transformer, family_of(transformer)):
        for module in block.modules():
            is_leaf = next(module.children(), None) is None
            large = [weight for weight in module.parameters() if weight.dtype in ROUNDED and weight.numel() > SMALL]
            if is_leaf and large:
                by_module[module] = large
    return by_module


@contextmanager
def _widened_in_calls(module: nn.Module, weights: list[nn.Parameter]) -> Iterator[None]:
    stored: list[Tensor] = []  # kept at each call, because offloading moves weights between calls

    def before(*_: Any) -> None:
        stored[:] = [weight.data for weight in weights]
        for weight in weights:
            weight.data = weight.data.float()

    def after(*_: Any) -> None:
        for weight, data in zip(weights, stored, strict=True):
            weight.data = data
        stored.clear()

    with module.register_forward_pre_hook(before), module.register_forward_hook(after, always_call=True):
        yield


def _convert(tensor: Tensor, dtype: torch.dtype) -> None:
    tensor.data = tensor.data.to(dtype)


def widen(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A forward pre-hook that converts a module's 16-bit inputs to float32."""
    return convert_to_fp32(args), convert_to_fp32(kwargs)
