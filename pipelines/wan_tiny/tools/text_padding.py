"""Cross-attention for training: one padding token equals WanPipeline's padding to 512 tokens, twice as fast.

WanPipeline lets cross-attention see zero vectors. Equal keys get equal weight, so n padding tokens act as one whose
attention logit is raised by log(n).
"""

import torch
from diffusers import WanTransformer3DModel
from diffusers.models.transformers.transformer_wan import WanAttention
from torch import Tensor, nn


class TrainingAttention:
    """Attention processor like Wan's, with a `bias` `(batch, 1, 1, text tokens)` for cross-attention's logits.

    The products are spelled out, because on a CPU the backward pass of PyTorch's fused attention takes five times as
    long at 80 tokens, and the compiler turns other spellings back into it.
    """

    bias: Tensor | None = None

    def __call__(
        self,
        attn: WanAttention,
        hidden_states: Tensor,
        encoder_hidden_states: Tensor | None = None,
        attention_mask: Tensor | None = None,
        rotary_emb: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:
        context = hidden_states if encoder_hidden_states is None else encoder_hidden_states

        def split(states: Tensor) -> Tensor:
            return states.unflatten(-1, (attn.heads, -1))

        query, key = split(attn.norm_q(attn.to_q(hidden_states))), split(attn.norm_k(attn.to_k(context)))
        if rotary_emb is not None:
            query, key = _rotate(query, *rotary_emb), _rotate(key, *rotary_emb)
        value = split(attn.to_v(context)).transpose(1, 2)
        query = query.to(value.dtype) * query.shape[-1] ** -0.5
        logits = (query.transpose(1, 2) @ key.to(value.dtype).permute(0, 2, 3, 1)).float()
        if self.bias is not None:
            logits = logits + self.bias
        weights = torch.exp(logits - logits.amax(-1, keepdim=True).detach())
        mixed = (weights.to(value.dtype) @ value).float() / weights.sum(-1, keepdim=True)
        mixed = mixed.transpose(1, 2).flatten(2).to(hidden_states.dtype)
        return attn.to_out[1](attn.to_out[0](mixed))


def _rotate(states: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """`states` `(batch, tokens, heads, channels)`, channel pairs rotated by angles `(1, tokens, 1, channels)`."""
    first, second = states.unflatten(-1, (-1, 2)).unbind(-1)
    cosine, sine = cosine[..., 0::2], sine[..., 1::2]
    return torch.stack([first * cosine - second * sine, first * sine + second * cosine], -1).flatten(-2)


def prepare_for_training(transformer: WanTransformer3DModel) -> None:
    """Give every attention of the transformer a `TrainingAttention`; the weights are untouched."""
    for block in transformer.blocks:
        block.attn1.set_processor(TrainingAttention())
        block.attn2.set_processor(TrainingAttention())


def pad_counted(transformer: WanTransformer3DModel, text: Tensor, mask: Tensor, padding: Tensor) -> Tensor:
    """Text embeddings `(batch, tokens, dim)` with one token more, which the next call of the transformer takes for
    `padding` `(batch, 1)` of them, above 0. `mask` `(batch, tokens)` is true where a text has tokens.
    """
    seen = torch.zeros(mask.shape).masked_fill(~mask, float("-inf"))
    bias = torch.cat([seen, padding.float().log()], dim=1)[:, None, None, :]
    for block in transformer.blocks:
        block.attn2.processor.bias = bias
    return nn.functional.pad(text, (0, 0, 0, 1))
