"""Quantised layers as libraries put them into a transformer when it is loaded."""

from collections.abc import Callable

import pytest
import torch
from diffusers import WanTransformer3DModel
from torch import nn


def with_torchao(transformer: WanTransformer3DModel) -> None:
    """Eight-bit weights, as `TorchAoConfig(Int8WeightOnlyConfig())` gives."""
    torchao = pytest.importorskip("torchao.quantization")
    torchao.quantize_(transformer.blocks, torchao.Int8WeightOnlyConfig())


def with_bitsandbytes(transformer: WanTransformer3DModel) -> None:
    """Four-bit weights, as `BitsAndBytesConfig(load_in_4bit=True)` gives."""
    layers = pytest.importorskip("bitsandbytes").nn

    def quantised(linear: nn.Linear) -> nn.Module:
        dtype = linear.weight.dtype
        layer = layers.Linear4bit(linear.in_features, linear.out_features, compute_dtype=dtype)
        layer.weight = layers.Params4bit(linear.weight.data, requires_grad=False)
        layer.bias = linear.bias
        return layer.to("cpu")

    _replace_linear_layers(transformer, quantised)


def with_gguf(transformer: WanTransformer3DModel) -> None:
    """Eight-bit weights (Q8_0), as `from_single_file(..., GGUFQuantizationConfig())` gives for a GGUF file."""
    gguf = pytest.importorskip("gguf")
    from diffusers.quantizers.gguf.utils import GGUFLinear, GGUFParameter

    kind = gguf.GGMLQuantizationType.Q8_0

    def quantised(linear: nn.Linear) -> nn.Module:
        rows = torch.from_numpy(gguf.quants.quantize(linear.weight.data.float().numpy(), kind))
        bias, dtype = linear.bias is not None, linear.weight.dtype
        layer = GGUFLinear(linear.in_features, linear.out_features, bias, compute_dtype=dtype)
        layer.weight, layer.bias = GGUFParameter(rows, quant_type=kind), linear.bias
        return layer

    _replace_linear_layers(transformer, quantised)


def _replace_linear_layers(transformer: WanTransformer3DModel, quantised: Callable[[nn.Linear], nn.Module]) -> None:
    for path, module in list(transformer.blocks.named_modules()):
        if isinstance(module, nn.Linear):
            parent, name = path.rsplit(".", 1)
            setattr(transformer.blocks.get_submodule(parent), name, quantised(module))


QUANTISED = {"torchao": with_torchao, "bitsandbytes": with_bitsandbytes, "GGUF": with_gguf}
