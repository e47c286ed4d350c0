"""Operations and bytes of one transformer call, counted from the shapes of its layers alone.

They equal PyTorch's FlopCounterMode on diffusers' classes. `video` are video tokens, `frames` decoded frames.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from galaxydit.eval.cost.architecture import BYTES, Architecture


@dataclass(frozen=True)
class Linear:
    """A matrix product of `(tokens, inputs)` with weights `(inputs, outputs)`."""

    tokens: int
    inputs: int
    outputs: int


@dataclass(frozen=True)
class Attention:
    """Attention of `queries` tokens over `keys` tokens; `is_self` is exchanged in context parallelism."""

    queries: int
    keys: int
    heads: int
    head_dim: int
    is_self: bool = False


Layer = Linear | Attention


@dataclass(frozen=True)
class Operations:
    """Operations of one transformer call for one sample and branch; bytes in bfloat16."""

    matrix_flops: float  # of `Linear`, two for each multiply-add
    attention_flops: float  # of the two products inside attention
    scores: float  # each takes one exponential
    activation_bytes: float  # inputs and outputs of all layers, moved by elementwise kernels
    weight_bytes: float
    exchanged_bytes: float  # queries of self-attention; keys, values and outputs take as many each
    attentions: int  # self-attention layers

    @property
    def flops(self) -> float:
        return self.matrix_flops + self.attention_flops


def count_operations(shape: Architecture, height: int, width: int, frames: int) -> Operations:
    """Operations of all blocks in one call, of a video in pixels and decoded frames."""
    video = shape.tokens(height, width, frames)
    return count_layers(list(BLOCKS[shape.family](shape, video, frames)))


def count_layers(layers: Sequence[tuple[int, Layer]]) -> Operations:
    """Operations of layers, each with how often it occurs."""
    linears = [(times, layer) for times, layer in layers if isinstance(layer, Linear)]
    attentions = [(times, layer) for times, layer in layers if isinstance(layer, Attention)]
    exchanged = [(times, layer) for times, layer in attentions if layer.is_self]
    values = sum(times * layer.tokens * (layer.inputs + layer.outputs) for times, layer in linears)
    values += sum(
        times * 2 * (layer.queries + layer.keys) * layer.heads * layer.head_dim for times, layer in attentions
    )
    scores = [(times * layer.queries * layer.keys * layer.heads, layer.head_dim) for times, layer in attentions]
    return Operations(
        matrix_flops=2.0 * sum(times * layer.tokens * layer.inputs * layer.outputs for times, layer in linears),
        attention_flops=4.0 * sum(count * head_dim for count, head_dim in scores),
        scores=float(sum(count for count, _ in scores)),
        activation_bytes=float(BYTES * values),
        weight_bytes=float(BYTES * sum(times * layer.inputs * layer.outputs for times, layer in linears)),
        exchanged_bytes=float(BYTES * sum(n * layer.queries * layer.heads * layer.head_dim for n, layer in exchanged)),
        attentions=sum(times for times, _ in exchanged),
    )


Blocks = Iterator[tuple[int, Layer]]
"""Layers of all blocks, each with how often it occurs. Below, `times` is the number of blocks."""


def _stream(times: int, tokens: int, width: int, ffn_dim: int) -> Blocks:
    """Projections of self-attention and feed-forward of one stream, without the attention."""
    yield 4 * times, Linear(tokens, width, width)
    yield times, Linear(tokens, width, ffn_dim)
    yield times, Linear(tokens, ffn_dim, width)


def _cross(times: int, queries: int, keys: int, widths: tuple[int, int], heads: int, head_dim: int) -> Blocks:
    """Cross-attention of `queries` tokens of width `widths[0]` to `keys` tokens of width `widths[1]`."""
    inner = heads * head_dim
    yield times, Linear(queries, widths[0], inner)
    yield 2 * times, Linear(keys, widths[1], inner)
    yield times, Linear(queries, inner, widths[0])
    yield times, Attention(queries, keys, heads, head_dim)


def _with_cross_attention(shape: Architecture, video: int, frames: int) -> Blocks:
    """Wan, LTX-Video, Cosmos and Kandinsky: self-attention, cross-attention to text and image, feed-forward."""
    times, width = shape.blocks + shape.control_blocks, shape.width
    yield from _stream(times, video, width, shape.ffn_dim)
    yield times, Attention(video, video, shape.heads, shape.head_dim, is_self=True)
    text = (width, shape.text_dim or width)
    yield from _cross(times, video, shape.text_tokens, text, shape.heads, shape.head_dim)
    if shape.image_tokens:
        yield 2 * times, Linear(shape.image_tokens, width, width)
        yield times, Attention(video, shape.image_tokens, shape.heads, shape.head_dim)
    if shape.control_blocks:
        yield shape.control_blocks + 1, Linear(video, width, width)


def _joint(shape: Architecture, video: int, frames: int) -> Blocks:
    """CogVideoX: text and video in one stream with shared weights."""
    tokens = video + shape.text_tokens
    yield from _stream(shape.blocks, tokens, shape.width, shape.ffn_dim)
    yield shape.blocks, Attention(tokens, tokens, shape.heads, shape.head_dim, is_self=True)


def _hunyuan(shape: Architecture, video: int, frames: int) -> Blocks:
    """HunyuanVideo: blocks with a stream each for text and video, then blocks with one for both."""
    width, tokens = shape.width, video + shape.text_tokens
    yield from _stream(shape.blocks, video, width, shape.ffn_dim)
    yield from _stream(shape.blocks, shape.text_tokens, width, shape.ffn_dim)
    yield 3 * shape.single_blocks, Linear(tokens, width, width)
    yield shape.single_blocks, Linear(tokens, width, shape.ffn_dim)
    yield shape.single_blocks, Linear(tokens, width + shape.ffn_dim, width)
    yield shape.blocks + shape.single_blocks, Attention(tokens, tokens, shape.heads, shape.head_dim, is_self=True)


def _mochi(shape: Architecture, video: int, frames: int) -> Blocks:
    """Mochi: a stream each for text and video, with gated feed-forward; the last block has no text output."""
    width, text_dim, text = shape.width, shape.text_dim or shape.width, shape.text_tokens
    yield 4 * shape.blocks, Linear(video, width, width)
    yield shape.blocks, Linear(video, width, 2 * shape.ffn_dim)
    yield shape.blocks, Linear(video, shape.ffn_dim, width)
    yield 3 * shape.blocks, Linear(text, text_dim, width)
    inner = shape.ffn_dim * text_dim // width
    yield shape.blocks - 1, Linear(text, width, text_dim)
    yield shape.blocks - 1, Linear(text, text_dim, 2 * inner)
    yield shape.blocks - 1, Linear(text, inner, text_dim)
    yield shape.blocks, Attention(video + text, video + text, shape.heads, shape.head_dim, is_self=True)


def _ltx2(shape: Architecture, video: int, frames: int) -> Blocks:
    """LTX-2: a video and an audio stream, each with cross-attention to the text and to the other."""
    times, heads, head_dim = shape.blocks, shape.audio_heads, shape.audio_head_dim
    width, inner = shape.width, heads * head_dim
    audio = round(frames / shape.fps * shape.audio_tokens_per_second)
    yield from _with_cross_attention(shape, video, frames)
    yield from _stream(times, audio, inner, 4 * inner)
    yield times, Attention(audio, audio, heads, head_dim)
    yield from _cross(times, audio, shape.text_tokens, (inner, inner), heads, head_dim)
    yield from _cross(times, video, audio, (width, inner), heads, head_dim)
    yield from _cross(times, audio, video, (inner, width), heads, head_dim)


BLOCKS: dict[str, Callable[[Architecture, int, int], Blocks]] = {
    **dict.fromkeys(("wan", "ltx", "cosmos", "kandinsky"), _with_cross_attention),
    "cogvideox": _joint,
    "hunyuan": _hunyuan,
    "mochi": _mochi,
    "ltx2": _ltx2,
}
"""By family: the function from shape, number of video tokens and number of frames to the layers of all blocks."""
MASKED = ("hunyuan",)
"""Families whose diffusers class passes a mask to self-attention."""
