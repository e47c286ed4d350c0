"""Let every block of the transformer read the caption: a transplant, and a penalty on attention to padding.

Trained from nothing, blocks 0, 1 and 7 put all cross-attention on WanPipeline's zero padding, so block 0 returns the
same for both branches of guidance. In Wan2.1 the branches differ from the first block on.
"""

import math
from typing import Any

import torch
from diffusers import WanTransformer3DModel
from torch import Tensor, nn
from torch.nn import functional

from galaxydit.pipelines.wan_tiny.tools import build

DONORS = {0: 2, 1: 2, 7: 5}  # block that reads padding alone: block whose cross-attention it gets
TRANSPLANT_GAIN = 0.3
# Log odds of padding against words below which the penalty is small: words then have 0.73 of the attention.
TARGET_LOG_ODDS = -1.0


@torch.no_grad()
def transplant(transformer: WanTransformer3DModel) -> None:
    """Give each block of `DONORS` its donor's cross-attention, with its output multiplied by `TRANSPLANT_GAIN`.

    The output's bias is chosen so that a block whose attention is on padding alone returns the same as before.
    """
    blocks = transformer.blocks
    zero = transformer.condition_embedder.text_embedder(torch.zeros(1, 1, transformer.config.text_dim))

    def padding_output(block: nn.Module) -> Tensor:
        return block.attn2.to_out[0](block.attn2.to_v(zero)).flatten()

    for blind, donor in DONORS.items():
        block = blocks[blind]
        before = padding_output(block)
        block.attn2.load_state_dict(blocks[donor].attn2.state_dict())
        block.norm2.load_state_dict(blocks[donor].norm2.state_dict())
        block.attn2.to_out[0].weight *= TRANSPLANT_GAIN
        block.attn2.to_out[0].bias += before - padding_output(block)


class PaddingAttention:
    """Log odds of padding against words in the cross-attention of blocks, each at the next call of the transformer.

    The log odds are those of WanPipeline, where padding fills the text up to `build.MAX_TEXT_TOKENS`, whatever number
    of padding tokens the training step shows.
    """

    def __init__(self, transformer: WanTransformer3DModel) -> None:
        self.log_odds: dict[int, Tensor] = {}  # `(batch, heads, queries)` by block
        for index in DONORS:
            if index < len(transformer.blocks):
                attention = transformer.blocks[index].attn2
                attention.register_forward_pre_hook(self._hook(index), with_kwargs=True)

    def _hook(self, index: int) -> Any:
        def measure(attention: Any, args: tuple[Tensor, ...], kwargs: dict[str, Any]) -> None:
            hidden, text = args[0], args[1]
            query = attention.norm_q(attention.to_q(hidden)).unflatten(2, (attention.heads, -1))
            key = attention.norm_k(attention.to_k(text)).unflatten(2, (attention.heads, -1))
            logits = torch.einsum("bqhd,bkhd->bhqk", query, key).float() / math.sqrt(query.shape[-1])
            is_padding = attention.processor.bias[..., :-1].isinf()  # `(batch, 1, 1, tokens)`
            words = logits[..., :-1].masked_fill(is_padding, -math.inf).logsumexp(-1)
            padding = (build.MAX_TEXT_TOKENS - (~is_padding).sum(-1)).log()
            self.log_odds[index] = logits[..., -1] + padding - words

        return measure

    def penalty(self, rows: Tensor) -> Tensor:
        """Sum over blocks of the mean excess of the log odds, smoothed by softplus; `rows` `(batch,)` have captions."""
        excess = [functional.softplus(odds[rows] - TARGET_LOG_ODDS).mean() for odds in self.log_odds.values()]
        return torch.stack(excess).sum()

    def word_shares(self, rows: Tensor) -> dict[int, float]:
        """Share of attention on words by block, a mean over queries and heads."""
        return {index: torch.sigmoid(-odds[rows].detach()).mean().item() for index, odds in self.log_odds.items()}
