"""Cross-attention for training: one padding token equals WanPipeline's padding to 512 tokens, twice as fast.

WanPipeline lets cross-attention see zero vectors. Equal keys get equal weight, so n padding tokens act as one whose
attention logit is raised by log(n).
"""

import torch
from diffusers import WanTransformer3DModel
from diffusers.models.transformers.transformer_wan import WanAttention, WanAttnProcessor
from torch import Tensor, nn


class TrainingAttention(WanAttnProcessor):
    """Wan's attention with a `bias` `(batch, 1, 1, text tokens)` for cross-attention's logits.

    Its products are not fused, because on a CPU the backward pass of PyTorch's fused attention takes five times as long
    at 80 tokens.
    """

    bias: Tensor | None = None
    _attention_backend = "_native_math"

    def __call__(
        self,
        attn: WanAttention,
        hidden_states: Tensor,
        encoder_hidden_states: Tensor | None = None,
        attention_mask: Tensor | None = None,
        rotary_emb: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:
        return super().__call__(attn, hidden_states, encoder_hidden_states, self.bias, rotary_emb)


def prepare_for_training(transformer: WanTransformer3DModel) -> None:
    """Give every attention of the transformer a `TrainingAttention`; the weights are untouched."""
    for block in transformer.blocks:
        block.attn1.set_processor(TrainingAttention())
        block.attn2.set_processor(TrainingAttention())


def pad_counted(transformer: WanTransformer3DModel, text: Tensor, mask: Tensor, padding: Tensor) -> Tensor:
    """Text embeddings `(batch, tokens, dim)` with one token more, which the next call of the transformer takes for
    `padding` `(batch, 1)` of them, above 0. `mask` `(batch, tokens)` is true where a text has tokens.
    """
    seen = torch.zeros(mask.shape, device=mask.device).masked_fill(~mask, float("-inf"))
    bias = torch.cat([seen, padding.float().log()], dim=1)[:, None, None, :]
    for block in transformer.blocks:
        block.attn2.processor.bias = bias
    return nn.functional.pad(text, (0, 0, 0, 1))
