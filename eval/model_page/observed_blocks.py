"""What each block makes of the text in a plain generation: difference of the branches, attention on words."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from diffusers import WanPipeline
from torch import Tensor

OBSERVED_STEPS = (0, 10, 25, 49)


class BlockObserver:
    """Hooks of one guided generation, whose every step calls the transformer for the caption, then without it.

    Attributes:
        branch_difference: by observed step, the relative L1 difference of each block's output between the branches.
        word_share: by observed step, each block's share of cross-attention on words instead of padding, a mean over
            heads and queries of the branch with the caption.
    """

    def __init__(self, pipe: WanPipeline, steps: Sequence[int]) -> None:
        self.branch_difference: dict[int, list[float]] = {}
        self.word_share: dict[int, list[float]] = {}
        self._steps = frozenset(steps)
        self._calls = 0
        self._conditional: list[Tensor] = []  # output of each block, of the step under way
        transformer = pipe.transformer
        self.handles = [transformer.register_forward_pre_hook(self._begin_call)]
        for block in transformer.blocks:
            self.handles.append(block.attn2.register_forward_pre_hook(self._measure_attention, with_kwargs=True))
            self.handles.append(block.register_forward_hook(self._compare_output))

    @property
    def _step(self) -> int:
        return (self._calls - 1) // 2

    @property
    def _is_conditional(self) -> bool:
        return self._calls % 2 == 1

    def _begin_call(self, *_: Any) -> None:
        self._calls += 1
        if self._is_conditional:
            self._conditional.clear()

    def _measure_attention(self, attention: Any, args: tuple[Tensor, ...], kwargs: dict[str, Any]) -> None:
        if self._step in self._steps and self._is_conditional:
            share = word_share(attention, args[0], args[1])
            self.word_share.setdefault(self._step, []).append(share)

    def _compare_output(self, block: Any, args: Any, output: Tensor) -> None:
        if self._step not in self._steps:
            return
        if self._is_conditional:
            self._conditional.append(output.float())
            return
        differences = self.branch_difference.setdefault(self._step, [])
        conditional = self._conditional[len(differences)]
        unconditional = output.float()
        difference = (conditional - unconditional).abs().mean() / unconditional.abs().mean()
        differences.append(difference.item())


@contextmanager
def observed_blocks(pipe: WanPipeline, steps: Sequence[int] = OBSERVED_STEPS) -> Iterator[BlockObserver]:
    """Observe one guided generation of `pipe`."""
    observer = BlockObserver(pipe, steps)
    try:
        yield observer
    finally:
        for handle in observer.handles:
            handle.remove()


def word_share(attention: Any, hidden: Tensor, text: Tensor) -> float:
    """Share of cross-attention on words, a mean over batch, heads and queries.

    `hidden` `(batch, tokens, dim)`, `text` `(batch, text tokens, dim)`; WanPipeline pads texts with equal vectors, and
    the last one is padding.
    """
    query = attention.norm_q(attention.to_q(hidden)).unflatten(2, (attention.heads, -1)).transpose(1, 2)
    key = attention.norm_k(attention.to_k(text)).unflatten(2, (attention.heads, -1)).transpose(1, 2)
    weights = (query.float() @ key.float().mT / math.sqrt(query.shape[-1])).softmax(dim=-1)
    is_word = (text != text[:, -1:]).any(dim=-1)  # `(batch, text tokens)`
    return torch.einsum("bhqk,bk->bhq", weights, is_word.float()).mean().item()
