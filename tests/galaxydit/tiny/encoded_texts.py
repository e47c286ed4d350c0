"""Encodes a text once for all pipelines with the same weights; a pytest plugin.

Wan pads every text to 512 tokens, so its encoder took a third of the time of a tiny generation. Outputs are kept by the
bytes of weights, tokens and mask: they are those of the encoder to the last bit.
"""

import hashlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import UMT5EncoderModel


def is_plain(encoder: UMT5EncoderModel) -> bool:
    """Whether the encoder is evaluated in memory on a CPU, in plain numbers, and nothing watches its layers."""
    if encoder.training or torch.is_grad_enabled():
        return False
    for layer in encoder.modules():
        if layer._forward_hooks or layer._forward_pre_hooks or "_hf_hook" in vars(layer):
            return False
    weights = (weight.data for weight in [*encoder.parameters(), *encoder.buffers()])
    return all(type(weight) is Tensor and weight.device.type == "cpu" for weight in weights)


def hash_of(encoder: UMT5EncoderModel, *inputs: Tensor) -> bytes:
    digest = hashlib.sha256(repr(encoder.config.to_dict()).encode())
    for tensor in (*inputs, *encoder.parameters(), *encoder.buffers()):
        digest.update(f"{tensor.dtype} {tensor.shape}".encode())
        digest.update(tensor.detach().contiguous().view(torch.uint8).numpy())
    return digest.digest()


@pytest.fixture(scope="session", autouse=True)
def texts_encoded_once() -> Iterator[None]:
    encode = UMT5EncoderModel.forward
    kept: dict[bytes, Any] = {}

    def forward(
        encoder: UMT5EncoderModel, input_ids: Tensor, attention_mask: Tensor | None = None, **options: Any
    ) -> Any:
        if attention_mask is None or options or not is_plain(encoder):
            return encode(encoder, input_ids, attention_mask, **options)
        name = hash_of(encoder, input_ids, attention_mask)
        if name not in kept:
            kept[name] = encode(encoder, input_ids, attention_mask)
        output = kept[name]
        return type(output)(last_hidden_state=output.last_hidden_state.clone())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(UMT5EncoderModel, "forward", forward)
        yield
