"""Train on short captions what WanPipeline computes on captions padded to 512 tokens, exactly.

WanPipeline pads text embeddings with zero vectors and lets cross-attention see them all. Equal keys get equal weight,
so n padding tokens act as one whose attention logit is raised by log(n). Keeping one of them makes a training step
twice as fast.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from diffusers import WanTransformer3DModel
from diffusers.models.transformers.transformer_wan import WanAttention, WanAttnProcessor
from torch import Tensor, nn


class CountedPaddingProcessor(WanAttnProcessor):
    """Wan's attention with an additive bias `(batch, 1, 1, text tokens)` on the text keys."""

    bias: Tensor | None = None

    def __call__(
        self,
        attn: WanAttention,
        hidden_states: Tensor,
        encoder_hidden_states: Tensor | None = None,
        attention_mask: Tensor | None = None,
        rotary_emb: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:
        bias = None if self.bias is None else self.bias.to(hidden_states.dtype)
        return super().__call__(attn, hidden_states, encoder_hidden_states, bias, rotary_emb)


@contextmanager
def use_counted_padding(
    transformer: WanTransformer3DModel, mask: Tensor, padding: Tensor
) -> Iterator[Callable[[Tensor], Tensor]]:
    """Within the context, the transformer treats text of `mask` `(batch, tokens)` as if followed by padding tokens.

    `padding` `(batch, 1)` is their number, above 0.

    Yields the function that appends the one padding token to text embeddings `(batch, tokens, dim)`.
    """
    copies = padding.float().log()
    text = torch.zeros(mask.shape).masked_fill(~mask, float("-inf"))
    bias = torch.cat([text, copies], dim=1)[:, None, None, :]
    processors = []
    for block in transformer.blocks:
        if not isinstance(block.attn2.processor, CountedPaddingProcessor):
            block.attn2.set_processor(CountedPaddingProcessor())
        processors.append(block.attn2.processor)
    for processor in processors:
        processor.bias = bias
    try:
        yield lambda embeddings: nn.functional.pad(embeddings, (0, 0, 0, 1))
    finally:
        for processor in processors:
            processor.bias = None
