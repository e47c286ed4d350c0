"""Operations and bytes of one transformer call, counted from the shapes of its layers alone.

They equal PyTorch's FlopCounterMode on diffusers' classes. `video` are video tokens, `frames` decoded frames.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from galaxydit.eval.cost.architecture import BYTES, Architecture


@dataclass(frozen=True)
class Operations:
    """Operations of one transformer call, or a part of it, for one sample and branch; bytes in bfloat16."""

    matrix_flops: int = 0  # of `linear`, two for each multiply-add
    attention_flops: int = 0  # of the two products inside attention
    scores: int = 0  # each takes one exponential
    activation_bytes: int = 0  # inputs and outputs of all layers, moved by elementwise kernels
    weight_bytes: int = 0
    exchanged_bytes: int = 0  # queries of self-attention; keys, values and outputs take as many each
    attentions: int = 0  # self-attention layers

    def __add__(self, other: "Operations") -> "Operations":
        return Operations(
            *(one + another for one, another in zip(vars(self).values(), vars(other).values(), strict=True))
        )

    @property
    def flops(self) -> int:
        return self.matrix_flops + self.attention_flops


def count_operations(shape: Architecture, height: int, width: int, frames: int) -> Operations:
    """Operations of all blocks in one call, of a video in pixels and decoded frames."""
    return BLOCKS[shape.family](shape, shape.tokens(height, width, frames), frames)


def linear(times: int, tokens: int, inputs: int, outputs: int) -> Operations:
    """`times` matrix products of `(tokens, inputs)` with weights `(inputs, outputs)`; `times` is that of layers."""
    weights = times * inputs * outputs
    moved = times * tokens * (inputs + outputs)
    return Operations(matrix_flops=2 * tokens * weights, activation_bytes=BYTES * moved, weight_bytes=BYTES * weights)


def attention(times: int, queries: int, keys: int, heads: int, head_dim: int) -> Operations:
    """Attention of `queries` tokens over `keys` tokens."""
    scores, moved = times * queries * keys * heads, 2 * times * (queries + keys) * heads * head_dim
    return Operations(attention_flops=4 * scores * head_dim, scores=scores, activation_bytes=BYTES * moved)


def self_attention(times: int, tokens: int, heads: int, head_dim: int) -> Operations:
    """Attention of tokens over themselves, which context parallelism exchanges."""
    exchanged = BYTES * times * tokens * heads * head_dim
    return replace(attention(times, tokens, tokens, heads, head_dim), exchanged_bytes=exchanged, attentions=times)


def _stream(times: int, tokens: int, width: int, ffn_dim: int) -> Operations:
    """Projections of self-attention and feed-forward of one stream, without the attention."""
    feed_forward = linear(times, tokens, width, ffn_dim) + linear(times, tokens, ffn_dim, width)
    return linear(4 * times, tokens, width, width) + feed_forward


def _cross(times: int, queries: int, keys: int, widths: tuple[int, int], heads: int, head_dim: int) -> Operations:
    """Cross-attention of `queries` tokens of width `widths[0]` to `keys` tokens of width `widths[1]`."""
    inner = heads * head_dim
    projections = linear(times, queries, widths[0], inner) + linear(times, queries, inner, widths[0])
    return projections + linear(2 * times, keys, widths[1], inner) + attention(times, queries, keys, heads, head_dim)


def _with_cross_attention(shape: Architecture, video: int, frames: int) -> Operations:
    """Wan, LTX-Video, Cosmos and Kandinsky: self-attention, cross-attention to text and image, feed-forward."""
    times, width, heads = shape.blocks + shape.control_blocks, shape.width, (shape.heads, shape.head_dim)
    made = _stream(times, video, width, shape.ffn_dim) + self_attention(times, video, *heads)
    made += _cross(times, video, shape.text_tokens, (width, shape.text_dim or width), *heads)
    if shape.image_tokens:
        made += linear(2 * times, shape.image_tokens, width, width)
        made += attention(times, video, shape.image_tokens, *heads)
    if shape.control_blocks:
        made += linear(shape.control_blocks + 1, video, width, width)
    return made


def _joint(shape: Architecture, video: int, frames: int) -> Operations:
    """CogVideoX: text and video in one stream with shared weights."""
    tokens = video + shape.text_tokens
    stream = _stream(shape.blocks, tokens, shape.width, shape.ffn_dim)
    return stream + self_attention(shape.blocks, tokens, shape.heads, shape.head_dim)


def _hunyuan(shape: Architecture, video: int, frames: int) -> Operations:
    """HunyuanVideo: blocks with a stream each for text and video, then blocks with one for both."""
    width, tokens, single = shape.width, video + shape.text_tokens, shape.single_blocks
    made = _stream(shape.blocks, video, width, shape.ffn_dim)
    made += _stream(shape.blocks, shape.text_tokens, width, shape.ffn_dim)
    made += linear(3 * single, tokens, width, width)
    made += linear(single, tokens, width, shape.ffn_dim)
    made += linear(single, tokens, width + shape.ffn_dim, width)
    return made + self_attention(shape.blocks + single, tokens, shape.heads, shape.head_dim)


def _mochi(shape: Architecture, video: int, frames: int) -> Operations:
    """Mochi: a stream each for text and video, with gated feed-forward; the last block has no text output."""
    width, text_dim, text = shape.width, shape.text_dim or shape.width, shape.text_tokens
    made = linear(4 * shape.blocks, video, width, width)
    made += linear(shape.blocks, video, width, 2 * shape.ffn_dim)
    made += linear(shape.blocks, video, shape.ffn_dim, width)
    made += linear(3 * shape.blocks, text, text_dim, width)
    inner = shape.ffn_dim * text_dim // width
    made += linear(shape.blocks - 1, text, width, text_dim)
    made += linear(shape.blocks - 1, text, text_dim, 2 * inner)
    made += linear(shape.blocks - 1, text, inner, text_dim)
    return made + self_attention(shape.blocks, video + text, shape.heads, shape.head_dim)


def _ltx2(shape: Architecture, video: int, frames: int) -> Operations:
    """LTX-2: a video and an audio stream, each with cross-attention to the text and to the other."""
    times, heads = shape.blocks, (shape.audio_heads, shape.audio_head_dim)
    width, inner = shape.width, shape.audio_heads * shape.audio_head_dim
    audio = round(frames / shape.fps * shape.audio_tokens_per_second)
    made = _with_cross_attention(shape, video, frames) + _stream(times, audio, inner, 4 * inner)
    made += attention(times, audio, audio, *heads)
    made += _cross(times, audio, shape.text_tokens, (inner, inner), *heads)
    made += _cross(times, video, audio, (width, inner), *heads)
    return made + _cross(times, audio, video, (inner, width), *heads)


BLOCKS: dict[str, Callable[[Architecture, int, int], Operations]] = {
    **dict.fromkeys(("wan", "ltx", "cosmos", "kandinsky"), _with_cross_attention),
    "cogvideox": _joint,
    "hunyuan": _hunyuan,
    "mochi": _mochi,
    "ltx2": _ltx2,
}
"""By family: the function from shape, number of video tokens and number of frames to the operations of all blocks."""
MASKED = ("hunyuan",)
"""Families whose diffusers class passes a mask to self-attention."""
