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
from galaxydit.pipelines.wan_tiny.tools.denoiser import Denoiser

DONORS = {0: 2, 1: 2, 7: 5}  # block that reads padding alone: block whose cross-attention it gets
TRANSPLANT_GAIN = 0.3
# Log odds of padding against words below which the penalty is small: words then have 0.73 of the attention.
TARGET_LOG_ODDS = -1.0
BRANCH_FLOOR = 0.03  # relative L1 difference of block 0 between the branches, below which the penalty of it begins


@torch.no_grad()
def transplant(transformer: WanTransformer3DModel) -> None:
    """Give each block of `DONORS` its donor's cross-attention, with its output multiplied by `TRANSPLANT_GAIN`.

    The output's bias is chosen so that a block whose attention is on padding alone returns the same as before.
    """
    blocks = transformer.blocks
    zero = transformer.condition_embedder.text_embedder(torch.zeros(1, 1, transformer.config.text_dim))

    def padding_output(block: Any) -> Tensor:
        output: Tensor = block.attn2.to_out[0](block.attn2.to_v(zero))
        return output.flatten()

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
        excess = [functional.softplus(odds - TARGET_LOG_ODDS).mean(dim=(1, 2)) for odds in self.log_odds.values()]
        return _mean_of(torch.stack(excess).sum(dim=0), rows)

    def word_shares(self, rows: Tensor) -> dict[int, float]:
        """Share of attention on words by block, a mean over queries and heads."""
        shares = {}
        for index, odds in self.log_odds.items():
            shares[index] = _mean_of(torch.sigmoid(-odds.detach()).mean(dim=(1, 2)), rows).item()
        return shares


def _mean_of(values: Tensor, rows: Tensor) -> Tensor:
    """Mean of `values` `(batch,)` over the chosen rows, 0 if there are none."""
    return (values * rows).sum() / rows.sum().clamp(min=1)


class FirstBlock:
    """Calls of the transformer's first block again, with other texts."""

    def __init__(self, model: Denoiser) -> None:
        self._model = model
        self._block = model.transformer.blocks[0]
        self._inputs: tuple[Tensor, ...] = ()
        self._block.register_forward_pre_hook(self._keep)

    def _keep(self, block: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self._inputs = inputs

    @torch.no_grad()
    def branch_difference(self, tokens: Tensor, empty: Tensor, rows: Tensor) -> float:
        """Relative L1 difference of the block's output between `tokens` and the empty text, padded as by WanPipeline.

        The other inputs are those of the last call, of which `rows` are taken.
        """
        conditional, unconditional = self._branches(tokens, empty, rows)
        return float((conditional - unconditional).abs().mean() / unconditional.abs().mean())

    def floor_penalty(self, tokens: Tensor, empty: Tensor, rows: Tensor) -> Tensor:
        """Mean over `rows` of log(`BRANCH_FLOOR` / difference) where the difference is below; 0 without rows.

        Without it, the difference falls from step to step, because the later blocks read the text, too.
        """
        if not len(rows):
            return torch.zeros((), device=tokens.device)
        conditional, unconditional = self._branches(tokens, empty, rows)
        change = (conditional - unconditional).abs().flatten(1).mean(1)
        differences = change / unconditional.abs().flatten(1).mean(1)
        return functional.relu(torch.log(BRANCH_FLOOR / differences.clamp(min=1e-6))).mean()

    def _branches(self, tokens: Tensor, empty: Tensor, rows: Tensor) -> list[Tensor]:
        """The block's outputs for `tokens` and for the empty text; gradients reach the block and the text embedding."""
        hidden, _, embedded_time, rotary = (
            each.detach() if isinstance(each, Tensor) else each for each in self._inputs
        )
        outputs = []
        for text in (tokens[rows], empty.expand_as(tokens[rows])):
            padding = build.MAX_TEXT_TOKENS - text.ne(0).sum(1, keepdim=True)
            embedded_text = self._model.transformer.condition_embedder.text_embedder(self._model.encode(text, padding))
            block = self._block.forward  # without hooks
            outputs.append(block(hidden[rows], embedded_text, embedded_time[rows], rotary).float())
        return outputs
